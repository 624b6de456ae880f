//! Inputs of a program: the values given by a caller.

use crate::document::{Complaints, is_name};
use crate::error::Faults;
use crate::value::{Kind, Value};
use serde_json::{Map, Value as Json};

/// Type of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as documents spell them: `u32[]` is `Tokens`")]
pub enum InputType {
    U32,
    Usize,
    F32,
    Bool,
    Text,
    Array,
    Tokens,
}

/// Declaration of an input, with hints for a user interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Name of the variable.
    pub name: String,
    /// Type of the value.
    pub ty: InputType,
    /// Description for users.
    pub description: Option<String>,
    /// Label for users, instead of the name.
    pub label: Option<String>,
    /// Default value.
    pub default: Option<Value>,
    /// Numbers only: the least value.
    pub min: Option<f64>,
    /// Numbers only: the greatest value.
    pub max: Option<f64>,
    /// Numbers only, step of a slider: a hint, not enforced.
    pub step: Option<f64>,
    /// If not empty, the allowed values.
    pub options: Vec<Value>,
    /// Whether user interfaces hide the input.
    pub hidden: bool,
}

const FIELDS: [&str; 10] = [
    "name",
    "type",
    "description",
    "default",
    "min",
    "max",
    "step",
    "options",
    "label",
    "hidden",
];

/// The input that is filled from the tokenizer, if declared, not given and without a default.
const EOS: &str = "eos_token";

impl InputType {
    /// The type's name in documents.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, ty)| *ty == self);
        found.map_or("", |(name, _)| name)
    }

    /// The kind of the variable.
    pub fn kind(self) -> Kind {
        match self {
            Self::U32 | Self::Usize => Kind::Int,
            Self::F32 => Kind::Float,
            Self::Bool => Kind::Bool,
            Self::Text => Kind::Text,
            Self::Array => Kind::Array,
            Self::Tokens => Kind::Tokens,
        }
    }

    fn coerce(self, json: &Json) -> Option<Value> {
        match self {
            Self::U32 => json
                .as_u64()
                .filter(|value| *value <= u64::from(u32::MAX))
                .map(|value| Value::Int(value as i64)),
            Self::Usize => json
                .as_u64()
                .and_then(|value| i64::try_from(value).ok())
                .map(Value::Int),
            Self::F32 => json.as_f64().map(Value::Float), // integers too
            Self::Bool => json.as_bool().map(Value::Bool),
            Self::Text => json.as_str().map(Value::text),
            Self::Array => json
                .as_array()
                .map(|items| Value::Array(items.clone().into())),
            Self::Tokens => {
                let ids = json.as_array()?.iter();
                let ids = ids.map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
                ids.collect::<Option<Vec<u32>>>().map(Value::tokens)
            }
        }
    }

    /// Parses a command-line argument: text unchanged, other types as JSON.
    fn read(self, text: &str) -> Json {
        match self {
            Self::Text => Json::from(text),
            _ => serde_json::from_str(text).unwrap_or_else(|_| Json::from(text)),
        }
    }
}

impl Input {
    pub(crate) fn parse(json: &Json, path: &str, wrong: &mut Complaints) -> Option<Self> {
        let Some(map) = json.as_object() else {
            wrong.add(path, "must be {\"name\", \"type\", ...}");
            return None;
        };
        if let Some(unknown) = map.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            let known = FIELDS.join(", ");
            wrong.add(
                format!("{path}.{unknown}"),
                format!("is unknown; known are {known}"),
            );
        }
        let mut complain = |field: &str, what: &str| wrong.add(format!("{path}.{field}"), what);
        let name = map.get("name").and_then(Json::as_str).unwrap_or_default();
        if !is_name(name) {
            complain("name", "must be letters, digits and _, at most 64");
            return None;
        }
        let spelled = map.get("type").and_then(Json::as_str);
        let ty = InputType::NAMES
            .iter()
            .find(|(name, _)| Some(*name) == spelled);
        let Some((_, ty)) = ty else {
            let known = InputType::NAMES.map(|(name, _)| name).join(", ");
            complain("type", &format!("must be one of {known}"));
            return None;
        };
        let mut input = Self {
            name: name.to_owned(),
            ty: *ty,
            description: optional_text(map, "description", &mut complain),
            label: optional_text(map, "label", &mut complain),
            default: None,
            min: optional_number(map, "min", *ty, &mut complain),
            max: optional_number(map, "max", *ty, &mut complain),
            step: optional_number(map, "step", *ty, &mut complain),
            options: Vec::new(),
            hidden: optional_flag(map, "hidden", &mut complain),
        };
        input.options = input.parse_options(map, &mut complain);
        if let Some(json) = map.get("default").filter(|json| !json.is_null()) {
            match input.coerce_checked(json) {
                Ok(value) => input.default = Some(value),
                Err(what) => complain("default", &what),
            }
        }
        Some(input)
    }

    fn parse_options(
        &self,
        map: &Map<String, Json>,
        complain: &mut impl FnMut(&str, &str),
    ) -> Vec<Value> {
        let Some(json) = map.get("options") else {
            return Vec::new();
        };
        let values = json.as_array().map(|items| {
            let values = items.iter().map(|item| self.ty.coerce(item));
            values.collect::<Option<Vec<Value>>>()
        });
        values.flatten().unwrap_or_else(|| {
            complain("options", &format!("must be a list of {}", self.ty.name()));
            Vec::new()
        })
    }

    /// Checks and coerces a value.
    fn coerce_checked(&self, json: &Json) -> Result<Value, String> {
        let value = self.ty.coerce(json);
        let value = value.ok_or_else(|| format!("must be {}", self.ty.name()))?;
        let number = match value {
            Value::Int(value) => Some(value as f64),
            Value::Float(value) => Some(value),
            _ => None,
        };
        if let (Some(number), Some(min)) = (number, self.min)
            && number < min
        {
            return Err(format!("is {number}; at least {min}"));
        }
        if let (Some(number), Some(max)) = (number, self.max)
            && number > max
        {
            return Err(format!("is {number}; at most {max}"));
        }
        if !self.options.is_empty() && !self.options.contains(&value) {
            let known: Vec<String> = self
                .options
                .iter()
                .map(|option| option.to_json().to_string())
                .collect();
            return Err(format!("must be one of {}", known.join(", ")));
        }
        Ok(value)
    }
}

/// Checks all inputs, in order of declaration. `eos` fills `eos_token`.
pub(crate) fn bind(
    inputs: &[Input],
    given: &Map<String, Json>,
    eos: Option<u32>,
) -> Result<Vec<Value>, Faults> {
    let mut wrong = Complaints::default();
    for name in given.keys() {
        if !inputs.iter().any(|input| input.name == *name) {
            wrong.add(name, "is no input of this program");
        }
    }
    let mut values = Vec::with_capacity(inputs.len());
    for input in inputs {
        let fill = eos.filter(|_| input.name == EOS && input.ty.kind() == Kind::Int);
        let fill = fill.map(|id| Value::Int(i64::from(id)));
        let value = match given.get(&input.name).filter(|json| !json.is_null()) {
            Some(json) => input.coerce_checked(json),
            None => input
                .default
                .clone()
                .or(fill)
                .ok_or_else(|| format!("is missing; it must be {}", input.ty.name())),
        };
        match value {
            Ok(value) => values.push(value),
            Err(what) => wrong.add(&input.name, what),
        }
    }
    wrong.finish()?;
    Ok(values)
}

/// Parses `name=text` of a command line.
pub(crate) fn read(inputs: &[Input], name: &str, text: &str) -> Json {
    let input = inputs.iter().find(|input| input.name == name);
    input.map_or_else(|| Json::from(text), |input| input.ty.read(text))
}

fn optional_text(
    map: &Map<String, Json>,
    field: &str,
    complain: &mut impl FnMut(&str, &str),
) -> Option<String> {
    let json = map.get(field).filter(|json| !json.is_null())?;
    let text = json.as_str().map(str::to_owned);
    if text.is_none() {
        complain(field, "must be a text");
    }
    text
}

fn optional_number(
    map: &Map<String, Json>,
    field: &str,
    ty: InputType,
    complain: &mut impl FnMut(&str, &str),
) -> Option<f64> {
    let json = map.get(field).filter(|json| !json.is_null())?;
    let numbers = matches!(ty.kind(), Kind::Int | Kind::Float);
    let number = json.as_f64().filter(|_| numbers);
    if number.is_none() {
        complain(field, "must be a number, of an input that is one");
    }
    number
}

fn optional_flag(
    map: &Map<String, Json>,
    field: &str,
    complain: &mut impl FnMut(&str, &str),
) -> bool {
    match map.get(field) {
        None => false,
        Some(Json::Bool(flag)) => *flag,
        Some(_) => {
            complain(field, "must be true or false");
            false
        }
    }
}
