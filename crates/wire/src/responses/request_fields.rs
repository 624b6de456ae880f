//! Request fields that a response repeats.

use crate::schema::written_as;
use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

/// The repeated fields of a response whose stream was opened in another protocol.
const DEFAULTS: &str = concat!(
    r#""frequency_penalty":0.0,"instructions":null,"max_output_tokens":null,"metadata":{},"parallel_tool_calls":true,"presence_penalty":0.0,"#,
    r#""previous_response_id":null,"reasoning":{"effort":null,"summary":null},"service_tier":"default","#,
    r#""store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"#,
    r#""top_logprobs":0,"top_p":1.0,"truncation":"disabled","user":null"#
);

/// Names and raw values.
#[derive(Default)]
pub(crate) struct RequestFields(Vec<(String, Box<RawValue>)>);

impl RequestFields {
    /// Parses the members of an object, given without braces.
    pub(crate) fn new(members: Option<&str>) -> Self {
        let object = format!("{{{}}}", members.unwrap_or(DEFAULTS));
        serde_json::from_str(&object).unwrap_or_default()
    }
}

/// Fields of the request that the response repeats.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RepeatedFields {
    frequency_penalty: f64,
    instructions: Option<String>,
    max_output_tokens: Option<u64>,
    #[schemars(skip_serializing_if = "Value::is_null")]
    max_tool_calls: Value,
    metadata: Map<String, Value>,
    parallel_tool_calls: bool,
    presence_penalty: f64,
    previous_response_id: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    reasoning: Map<String, Value>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<String>,
    service_tier: String,
    store: bool,
    temperature: f64,
    text: Map<String, Value>,
    tool_choice: Value,
    tools: Vec<Value>,
    top_logprobs: u64,
    top_p: f64,
    truncation: String,
    user: Option<String>,
}

written_as!(RequestFields => RepeatedFields);

impl Serialize for RequestFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for RequestFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = RequestFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RequestFields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(RequestFields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_field_keeps_its_spelling() {
        for members in [DEFAULTS, r#""a":0.10000000000000001,"b":[1e400,"\u0041"]"#] {
            let fields = RequestFields::new(Some(members));
            assert_eq!(
                serde_json::to_string(&fields).unwrap(),
                format!("{{{members}}}")
            );
        }
    }
}
