//! Typed and bounded access to the metadata of one architecture.

use super::{ConfigError, ollama_keys};
use crate::gguf::{FromValue, Gguf, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// The keys of a file with the architecture's prefix.
pub(crate) struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'static str,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(gguf: &'a Gguf, architecture: &'static str) -> Self {
        Self { gguf, architecture }
    }

    /// An integer in `least..=most`, if the key is present.
    pub(crate) fn size(
        &self,
        name: &str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let found = value
            .integer()
            .ok_or_else(|| self.wrong_type(name, "a whole number"))?;
        match usize::try_from(found) {
            Ok(size) if (least..=most).contains(&size) => Ok(Some(size)),
            _ => Err(self.range(name, found, format!("{least} to {most}"))),
        }
    }

    /// Like [`Self::size`], for a required key.
    pub(crate) fn required(
        &self,
        name: &str,
        least: usize,
        most: usize,
    ) -> Result<usize, ConfigError> {
        self.size(name, least, most)?
            .ok_or_else(|| self.missing(name))
    }

    /// A whole number in `least..=most` for each of `len` layers, if the key is present: an array, or one for all.
    pub(crate) fn sizes(
        &self,
        name: &str,
        len: usize,
        least: usize,
        most: usize,
    ) -> Result<Option<Vec<usize>>, ConfigError> {
        if !matches!(self.get(name), Some(Value::Array(_))) {
            let size = self.size(name, least, most)?;
            return Ok(size.map(|size| vec![size; len]));
        }
        let numbers = self.numbers(name, len)?.unwrap_or_default();
        if numbers.len() != len {
            return Err(self.range(
                name,
                numbers.len(),
                format!("{len} long, one for each layer"),
            ));
        }
        let sizes = numbers
            .into_iter()
            .map(|found| match usize::try_from(found) {
                Ok(size) if (least..=most).contains(&size) => Ok(size),
                _ => Err(self.range(name, found, format!("{least} to {most}"))),
            });
        sizes.collect::<Result<_, _>>().map(Some)
    }

    /// A finite number within `bound`, if the key is present.
    pub(crate) fn float(
        &self,
        name: &str,
        bound: RangeInclusive<f32>,
    ) -> Result<Option<f32>, ConfigError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let found = f32::from_value(&value).map_err(|_| self.wrong_type(name, "a number"))?;
        if bound.contains(&found) {
            return Ok(Some(found));
        }
        Err(self.range(name, found, format!("{} to {}", bound.start(), bound.end())))
    }

    /// Text, if the key is present.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, ConfigError> {
        self.get(name)
            .map(|value| <&str>::from_value(&value).map_err(|_| self.wrong_type(name, "text")))
            .transpose()
    }

    /// True or false, if the key is present.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong_type(name, "true or false")),
        }
    }

    /// The whole numbers of an array of at most `most`, if the key is present.
    pub(crate) fn numbers(
        &self,
        name: &str,
        most: usize,
    ) -> Result<Option<Vec<i128>>, ConfigError> {
        self.list(name, most, "an array of whole numbers", |value| {
            value.integer()
        })
    }

    /// The numbers of an array of at most `most`, if the key is present.
    pub(crate) fn floats(&self, name: &str, most: usize) -> Result<Option<Vec<f32>>, ConfigError> {
        self.list(name, most, "an array of numbers", |value| {
            f32::from_value(value).ok()
        })
    }

    fn list<T>(
        &self,
        name: &str,
        most: usize,
        wanted: &'static str,
        read: impl Fn(&Value<'_>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, ConfigError> {
        let wrong = || self.wrong_type(name, wanted);
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(array)) if array.len() > most => {
                Err(self.range(name, array.len(), format!("at most {most} long")))
            }
            Some(Value::Array(array)) => {
                let values = array.values().map(|value| read(&value));
                values.collect::<Option<_>>().map(Some).ok_or_else(wrong)
            }
            Some(_) => Err(wrong()),
        }
    }

    /// One flag for each of `len` layers, if the key is present and holds an array.
    pub(crate) fn flags(&self, name: &str, len: usize) -> Result<Option<Vec<bool>>, ConfigError> {
        let Some(Value::Array(array)) = self.get(name) else {
            return Ok(None);
        };
        if array.len() != len {
            return Err(self.range(name, array.len(), format!("{len} long, one for each layer")));
        }
        array
            .values()
            .map(|value| match value {
                Value::Bool(flag) => Some(flag),
                other => other.integer().map(|number| number != 0),
            })
            .collect::<Option<Vec<_>>>()
            .map(Some)
            .ok_or_else(|| self.wrong_type(name, "a number or flags"))
    }

    /// The unchecked value.
    pub(crate) fn get(&self, name: &str) -> Option<Value<'a>> {
        let value = self.gguf.get(&self.full(name));
        let value = value.map(|value| ollama_keys::of_all_layers(self.architecture, name, value));
        value.or_else(|| ollama_keys::value(self.gguf, self.architecture, name))
    }

    pub(crate) fn missing(&self, name: &str) -> ConfigError {
        ConfigError::Missing {
            key: self.full(name),
        }
    }

    pub(crate) fn wrong_type(&self, name: &str, wanted: &'static str) -> ConfigError {
        ConfigError::Type {
            key: self.full(name),
            wanted,
        }
    }

    pub(crate) fn range(
        &self,
        name: &str,
        found: impl Display,
        bound: impl Into<String>,
    ) -> ConfigError {
        let (found, bound) = (found.to_string(), bound.into());
        ConfigError::Range {
            key: self.full(name),
            found,
            bound,
        }
    }

    pub(crate) fn unsupported(&self, name: &str, what: &'static str) -> ConfigError {
        ConfigError::Unsupported {
            key: self.full(name),
            what,
        }
    }

    fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }
}
