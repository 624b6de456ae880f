//! Messages of a conversation.

use crate::Tokenizer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// A message as chat templates see messages: `role`, `content`, and all other fields of the client
/// (`tool_calls`, `tool_call_id`, `name`, `reasoning_content`) unchanged.
#[derive(Clone, Debug, Hash, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// system, developer, user, assistant or tool.
    pub role: String,
    /// A string, a list of parts, or null.
    #[serde(default)]
    pub content: Value,
    /// All other fields.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

impl Message {
    /// This message with all strings except the role [escaped](Tokenizer::escape_control_text).
    #[must_use]
    pub fn with_escaped_text(self, tokenizer: &Tokenizer) -> Self {
        let mut message = self;
        mark(&mut message.content, tokenizer);
        message
            .rest
            .values_mut()
            .for_each(|value| mark(value, tokenizer));
        message
    }
}

fn mark(value: &mut Value, tokenizer: &Tokenizer) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(marked) = tokenizer.escape_control_text(text) {
                *text = marked;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mark(value, tokenizer)),
        Value::Object(fields) => fields.values_mut().for_each(|value| mark(value, tokenizer)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
