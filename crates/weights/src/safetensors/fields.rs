//! Typed and bounded access to `config.json`.

use super::SafetensorsError;
use super::error::What;
use super::infinities::without_infinities;
use super::limits::CONFIG_BYTES_MAX;
use super::shards::read_bounded;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The file with architecture and sizes.
pub const CONFIG: &str = "config.json";

/// An object of `config.json`: the root or a nested object.
pub(super) struct Fields<'a> {
    path: &'a Path,
    /// Prefix of field names in errors.
    inside: String,
    object: &'a Map<String, Value>,
}

/// The parsed file.
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    /// Prefix of field names in errors; `None`: the fields are those of the whole file.
    inside: Option<&'static str>,
    object: Map<String, Value>,
}

impl ConfigFile {
    pub(super) fn read(folder: &Path) -> Result<Self, SafetensorsError> {
        let path = folder.join(CONFIG);
        let text = read_bounded(&path, CONFIG_BYTES_MAX)?;
        let text = without_infinities(text);
        let object = serde_json::from_slice(&text).map_err(SafetensorsError::json(&path))?;
        Ok(Self {
            path,
            inside: None,
            object,
        })
    }

    /// The file with the fields of a part of it: one of its objects, whose name ends with a dot, or some of the whole.
    pub(super) fn inside(self, inside: &'static str, object: Map<String, Value>) -> Self {
        Self {
            path: self.path,
            inside: Some(inside),
            object,
        }
    }

    /// Whether the fields are those of a part.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    pub(super) fn fields(&self) -> Fields<'_> {
        Fields {
            inside: self.inside.unwrap_or_default().to_owned(),
            ..Fields::new(&self.path, &self.object)
        }
    }
}

impl<'a> Fields<'a> {
    /// The fields of another file of the folder.
    pub(super) fn new(path: &'a Path, object: &'a Map<String, Value>) -> Self {
        Self {
            path,
            inside: String::new(),
            object,
        }
    }

    /// All fields.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.object.iter()
    }

    /// The value of a field; `None` for null.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    /// Whether the field is present and null.
    pub(super) fn is_null(&self, field: &str) -> bool {
        self.object.get(field).is_some_and(Value::is_null)
    }

    /// An integer that fits 32 bits.
    pub(super) fn number(&self, field: &str) -> Result<Option<u32>, SafetensorsError> {
        let whole = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        self.typed(field, "a whole number below 2^32", whole)
    }

    pub(super) fn need_number(&self, field: &str) -> Result<u32, SafetensorsError> {
        self.number(field)?.ok_or_else(|| self.missing(field))
    }

    /// A finite number.
    pub(super) fn float(&self, field: &str) -> Result<Option<f64>, SafetensorsError> {
        let finite = |value: &Value| value.as_f64().filter(|number| number.is_finite());
        self.typed(field, "a finite number", finite)
    }

    pub(super) fn need_float(&self, field: &str) -> Result<f64, SafetensorsError> {
        self.float(field)?.ok_or_else(|| self.missing(field))
    }

    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>, SafetensorsError> {
        self.typed(field, "true or false", Value::as_bool)
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>, SafetensorsError> {
        self.typed(field, "text", Value::as_str)
    }

    /// A list of texts.
    pub(super) fn texts(&self, field: &str) -> Result<Option<Vec<&'a str>>, SafetensorsError> {
        let all = |value: &'a Value| value.as_array()?.iter().map(Value::as_str).collect();
        self.typed(field, "a list of texts", all)
    }

    /// A list of integers that fit 32 bits.
    pub(super) fn numbers(&self, field: &str) -> Result<Option<Vec<u32>>, SafetensorsError> {
        let whole = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let all = |value: &'a Value| value.as_array()?.iter().map(whole).collect();
        self.typed(field, "a list of whole numbers below 2^32", all)
    }

    /// A list of finite numbers.
    pub(super) fn need_floats(&self, field: &str) -> Result<Vec<f32>, SafetensorsError> {
        let finite = |value: &Value| value.as_f64().map(|v| v as f32).filter(|v| v.is_finite());
        let all = |value: &'a Value| value.as_array()?.iter().map(finite).collect();
        self.typed(field, "a list of finite numbers", all)?
            .ok_or_else(|| self.missing(field))
    }

    /// A nested object.
    pub(super) fn object(&self, field: &str) -> Result<Option<Fields<'a>>, SafetensorsError> {
        let object = self.typed(field, "an object", Value::as_object)?;
        Ok(object.map(|object| Fields {
            path: self.path,
            inside: format!("{}{field}.", self.inside),
            object,
        }))
    }

    pub(super) fn missing(&self, field: &str) -> SafetensorsError {
        self.wrong(field, "is missing")
    }

    /// An error about a field.
    pub(super) fn wrong(&self, field: &str, why: impl Into<String>) -> SafetensorsError {
        let field = format!("{}{field}", self.inside);
        let why = why.into();
        SafetensorsError::new(self.path, What::Field { field, why })
    }

    fn typed<T>(
        &self,
        field: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, SafetensorsError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let wrong = || {
            let found: String = value.to_string().chars().take(64).collect();
            self.wrong(field, format!("is {found}, must be {wanted}"))
        };
        read(value).map(Some).ok_or_else(wrong)
    }
}
