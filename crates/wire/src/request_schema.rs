//! JSON schemas of request bodies: recorded from the parsers.
//!
//! Each parser reads some small bodies with a [`FieldRecorder`]: names, types and bounds of the schema are those that
//! the parser checks and records; further descriptions are those of the field tables. The tests compare each property with
//! the parser, value by value.

mod request_rows;

pub use request_rows::REQUESTS;

use self::request_rows::ANY_NUMBER;
use crate::fields::Fields;
use crate::fields::recorder::{FieldRecorder, merge};
use crate::request_parser::{ParseContext, RequestParser};
use generate::error::ApiError;
use serde_json::{Map, Value, json};

/// The body of a request.
pub struct RequestSchema {
    /// Name of the schema.
    pub name: &'static str,
    /// Required fields.
    required: &'static [&'static str],
    /// Fields of which one is required; the error for a body without them names the first.
    alternatives: &'static [&'static str],
    /// Whether `model` is read for the model lookup, before the parser reads the other fields.
    names_model: bool,
    /// Bodies that together make the parser read all of its fields.
    samples: &'static [&'static str],
    parser: BodyParser,
}

/// The parser of a body.
enum BodyParser {
    /// Of a wire protocol.
    Protocol(RequestParser),
    Other(fn(Fields<'_>) -> Result<(), ApiError>),
}

impl RequestSchema {
    /// The JSON schema.
    pub fn schema(&self) -> Value {
        let mut properties = self.recorded(self.samples);
        if self.names_model {
            let model = json!({"type": "string", "description": "default: the first model"});
            merge(properties.entry("model").or_insert(json!({})), model);
        }
        let properties: Map<String, Value> = properties
            .into_iter()
            .map(|(name, schema)| {
                let schema = if self.required.contains(&&*name) {
                    schema
                } else {
                    nullable(schema)
                };
                (name, schema)
            })
            .collect();
        let mut schema =
            json!({"type": "object", "properties": properties, "required": self.required});
        if !self.alternatives.is_empty() {
            let alternatives = self.alternatives.iter();
            schema["anyOf"] = alternatives
                .map(|name| json!({"required": [name]}))
                .collect();
        }
        schema
    }

    fn parse(&self, fields: Fields<'_>) -> Result<(), ApiError> {
        match self.parser {
            BodyParser::Protocol(parse) => {
                parse(fields, &ParseContext::of_vocab(ANY_NUMBER)).map(drop)
            }
            BodyParser::Other(parse) => parse(fields),
        }
    }

    /// Schemas of the fields that the parser reads of some bodies.
    fn recorded(&self, bodies: &[&str]) -> Map<String, Value> {
        let recorder = FieldRecorder::default();
        for body in bodies {
            if let Ok(fields) = Fields::parse(body.as_bytes()) {
                // Missing fields are errors: only what was read counts.
                let _ = self.parse(fields.with_recorder(&recorder));
            }
        }
        recorder.take()
    }
}

/// The schema of a field that may be left out: null is the same.
fn nullable(mut schema: Value) -> Value {
    let Some(object) = schema.as_object_mut() else {
        return schema;
    };
    let inner = object.get_mut("properties").and_then(Value::as_object_mut);
    for (_, property) in inner.into_iter().flatten() {
        *property = nullable(property.take());
    }
    match object.get_mut("type") {
        Some(Value::String(name)) => {
            let name = std::mem::take(name);
            object["type"] = json!([name, "null"]);
        }
        Some(Value::Array(names)) if !names.contains(&json!("null")) => names.push(json!("null")),
        _ => {}
    }
    if let Some(Value::Array(values)) = object.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    if let Some(Value::Array(schemas)) = object.get_mut("anyOf") {
        schemas.push(json!({"type": "null"}));
    }
    schema
}

#[cfg(test)]
mod tests;
