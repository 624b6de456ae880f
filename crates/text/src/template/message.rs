//! Messages of a conversation as templates read them.

use crate::Tokenizer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// One message as templates see it: `role`, `content` and whatever else the caller sent
/// (`tool_calls`, `tool_call_id`, `name`, `reasoning_content`), passed through as it is.
#[derive(Clone, Debug, Hash, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// system, developer, user, assistant, tool.
    pub role: String,
    /// A string, a list of parts, or null.
    #[serde(default)]
    pub content: Value,
    /// All other fields.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

impl Message {
    /// The message with every string in it [marked as typed](Tokenizer::mark_typed), but for the role.
    #[must_use]
    pub fn marked(self, tokenizer: &Tokenizer) -> Self {
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
            if let Cow::Owned(marked) = tokenizer.mark_typed(text) {
                *text = marked;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mark(value, tokenizer)),
        Value::Object(fields) => fields.values_mut().for_each(|value| mark(value, tokenizer)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
