//! JSON schemas of request bodies: recorded from the parsers.
//!
//! Each parser reads some small bodies with a [`FieldRecorder`]: names, types and bounds of the schema are those that
//! the parser checks, and descriptions are those of the field tables. Fields that a parser reads as raw JSON have their
//! schemas in `details`. The tests compare each property with the parser, value by value.

mod details;

use self::details::Detail;
use crate::control_request::ControlRequest;
use crate::fields::Fields;
use crate::fields::recorder::{FieldRecorder, merge};
use crate::request_parser::ParseContext;
use crate::{ai_sdk, anthropic, jobs, ollama, openai, responses};
use generate::error::ApiError;
use serde_json::{Map, Value, json};

/// A context for bodies of any model: every token id is valid.
fn any_context() -> ParseContext<'static> {
    ParseContext::of_vocab(u32::MAX as usize)
}

/// The body of a request.
pub struct RequestSchema {
    /// Name of the schema.
    pub name: &'static str,
    /// Required fields.
    required: &'static [&'static str],
    /// Bodies that together make the parser read all of its fields.
    samples: &'static [&'static str],
    parse: fn(Fields<'_>) -> Result<(), ApiError>,
    details: &'static [&'static [Detail]],
}

/// All bodies that a parser of this crate reads.
pub const REQUESTS: [RequestSchema; 11] = [
    RequestSchema {
        name: "ChatRequest",
        required: &["messages"],
        samples: &["{}"],
        parse: |fields| openai::chat_request::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::CHAT],
    },
    RequestSchema {
        name: "CompletionRequest",
        required: &["prompt"],
        samples: &["{}"],
        parse: |fields| openai::completion_request::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::COMPLETION],
    },
    RequestSchema {
        name: "ResponseRequest",
        required: &["input"],
        samples: &["{}"],
        parse: |fields| responses::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::RESPONSE],
    },
    RequestSchema {
        name: "MessageRequest",
        required: &["messages", "max_tokens"],
        samples: &["{}", r#"{"tool_choice": {}}"#],
        parse: |fields| anthropic::message_request::parse(fields, &any_context()).map(drop),
        details: &[
            details::GENERATION,
            details::MESSAGE,
            details::MESSAGE_SAMPLING,
        ],
    },
    RequestSchema {
        name: "MessageTokensRequest",
        required: &["messages"],
        samples: &[
            "{}",
            r#"{"tool_choice": {}, "thinking": {"type": "enabled"}}"#,
        ],
        parse: |fields| anthropic::message_request::parse_prompt(fields).map(drop),
        details: &[details::MESSAGE],
    },
    RequestSchema {
        name: "AiSdkChatRequest",
        required: &["messages"],
        samples: &["{}"],
        parse: |fields| ai_sdk::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::AI_SDK],
    },
    RequestSchema {
        name: "JobRequest",
        required: &[],
        samples: &["{}", r#"{"messages": []}"#, r#"{"prompt": ""}"#],
        parse: |fields| jobs::request::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::CHAT, details::JOB],
    },
    RequestSchema {
        name: "OllamaChatRequest",
        required: &[],
        samples: &["{}"],
        parse: |fields| ollama::chat_request::parse(fields, &any_context()).map(drop),
        details: &[details::STREAM, details::OLLAMA, details::OLLAMA_CHAT],
    },
    RequestSchema {
        name: "OllamaGenerateRequest",
        required: &[],
        samples: &["{}", r#"{"raw": true}"#],
        parse: |fields| ollama::generate_request::parse(fields, &any_context()).map(drop),
        details: &[details::STREAM, details::OLLAMA],
    },
    RequestSchema {
        name: "StreamUpdateRequest",
        required: &[],
        samples: &["{}"],
        parse: |mut fields| {
            ControlRequest::from_fields(&mut fields);
            fields.finish()
        },
        details: &[details::UPDATE],
    },
    RequestSchema {
        name: "OllamaOptions",
        required: &[],
        samples: &["{}"],
        parse: |mut fields| {
            ollama::request::check_options(&mut fields);
            fields.finish()
        },
        details: &[details::SAMPLING, details::FORMAT],
    },
];

impl RequestSchema {
    /// The JSON schema.
    pub fn schema(&self) -> Value {
        let mut properties = self.recorded(self.samples);
        let model = json!({"type": "string", "description": "default: the first model"});
        if !matches!(self.name, "StreamUpdateRequest" | "OllamaOptions") {
            merge(properties.entry("model").or_insert(json!({})), model);
        }
        for detail in self.details.iter().flat_map(|details| details.iter()) {
            if let Some(property) = properties.get_mut(detail.name) {
                merge(property, (detail.schema)());
            }
        }
        let properties: Map<String, Value> = properties
            .into_iter()
            .map(|(name, schema)| {
                let schema = match self.required.contains(&&*name) {
                    true => schema,
                    false => nullable(schema),
                };
                (name, schema)
            })
            .collect();
        json!({"type": "object", "properties": properties, "required": self.required})
    }

    /// Schemas of the fields that the parser reads of some bodies.
    fn recorded(&self, bodies: &[&str]) -> Map<String, Value> {
        let recorder = FieldRecorder::default();
        for body in bodies {
            if let Ok(fields) = Fields::parse(body.as_bytes()) {
                // Missing fields are errors: only what was read counts.
                let _ = (self.parse)(fields.with_recorder(&recorder));
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
