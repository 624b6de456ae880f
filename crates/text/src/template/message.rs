//! Messages of a conversation.

use super::call_arguments::normalize_calls;
use crate::Tokenizer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
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
    pub rest: Map<String, Value>,
}

impl Message {
    /// This message with all strings and names of fields, except the role, [escaped](Tokenizer::escape_control_text). Arguments
    /// of tool calls become objects before: decoding a text of JSON later could write a control token's text.
    #[must_use]
    pub fn with_escaped_text(self, tokenizer: &Tokenizer) -> Self {
        let mut message = self;
        // Escaping removes forged marks, which could hide the names that lead to the arguments.
        mark_names(&mut message.rest, tokenizer);
        normalize_calls(std::slice::from_mut(&mut message));
        mark(&mut message.content, tokenizer);
        mark_fields(&mut message.rest, tokenizer);
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
        Value::Object(fields) => mark_fields(fields, tokenizer),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mark_fields(fields: &mut Map<String, Value>, tokenizer: &Tokenizer) {
    rename(fields, tokenizer);
    fields.values_mut().for_each(|value| mark(value, tokenizer));
}

/// Values, such as tool definitions, with all strings and names of fields [escaped](Tokenizer::escape_control_text).
#[must_use]
pub fn with_escaped_values(values: &[Value], tokenizer: &Tokenizer) -> Vec<Value> {
    let mut values = values.to_vec();
    values.iter_mut().for_each(|value| mark(value, tokenizer));
    values
}

/// Escapes the names of fields, at every depth.
fn mark_names(fields: &mut Map<String, Value>, tokenizer: &Tokenizer) {
    rename(fields, tokenizer);
    let mut open: Vec<&mut Value> = fields.values_mut().collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Array(values) => open.extend(values),
            Value::Object(fields) => {
                rename(fields, tokenizer);
                open.extend(fields.values_mut());
            }
            _ => {}
        }
    }
}

/// Escapes the names of these fields. Most have nothing to escape, and stay as they are.
fn rename(fields: &mut Map<String, Value>, tokenizer: &Tokenizer) {
    let is_marked = |name: &String| matches!(tokenizer.escape_control_text(name), Cow::Owned(_));
    if fields.keys().any(is_marked) {
        let marked = |(name, value): (String, Value)| {
            (tokenizer.escape_control_text(&name).into_owned(), value)
        };
        *fields = std::mem::take(fields).into_iter().map(marked).collect();
    }
}
