//! Messages of a conversation, with the arguments of earlier tool calls as objects, and its tool definitions with all
//! optional parts, for templates that read those without a test.

use super::image_parts::with_marks;
use crate::Tokenizer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
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
    /// of tool calls become objects before: decoding a text of JSON later could write a control token's text. Parts that are
    /// images become [marks](super::image_mark) in the text.
    #[must_use]
    pub fn with_escaped_text(self, tokenizer: &Tokenizer) -> Self {
        let mut message = self;
        // Escaping removes forged marks, which could hide the names that lead to the arguments.
        mark_names(&mut message.rest, tokenizer);
        normalize_calls(std::slice::from_mut(&mut message));
        mark(&mut message.content, tokenizer);
        with_marks(&mut message.content);
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

/// Member that holds arguments that are no JSON: those of a truncated answer. Anthropic documents this name.
pub const INVALID_ARGUMENTS: &str = "INVALID_JSON";
/// Member that holds arguments that are JSON, but no object.
const VALUE: &str = "arguments";

/// Makes the arguments of all calls objects, and removes empty lists of calls.
pub(super) fn normalize_calls(messages: &mut [Message]) {
    for message in messages {
        match message.rest.get_mut("tool_calls") {
            Some(Value::Array(calls)) if !calls.is_empty() => {
                calls.iter_mut().for_each(normalize_call);
            }
            Some(_) => {
                message.rest.shift_remove("tool_calls");
            }
            None => {}
        }
    }
}

fn normalize_call(call: &mut Value) {
    let Some(Value::Object(function)) = call.get_mut("function") else {
        return;
    };
    let arguments = function.entry("arguments").or_insert(Value::Null);
    *arguments = Value::Object(as_object(arguments.take()));
}

/// Arguments in any form as an object: a text of JSON, an object, a list, nothing, or a text that was cut.
fn as_object(arguments: Value) -> Map<String, Value> {
    let held = |name: &str, value: Value| Map::from_iter([(name.to_owned(), value)]);
    let value = match arguments {
        Value::String(text) if text.trim().is_empty() => Value::Null,
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(_) => return held(INVALID_ARGUMENTS, json!(text)),
        },
        value => value,
    };
    match value {
        Value::Object(object) => object,
        Value::Null => Map::new(),
        // Some languages write an object without members as a list.
        Value::Array(items) if items.is_empty() => Map::new(),
        value => held(VALUE, value),
    }
}

/// Nesting of schemas that are completed.
const DEPTH_MAX: usize = 8;

/// Definitions in OpenAI's shape with a description, parameters, and one type for each property.
pub(super) fn complete_tools(tools: &[Value]) -> Vec<Value> {
    let mut tools = tools.to_vec();
    for tool in &mut tools {
        if let Some(function) = tool.get_mut("function").and_then(Value::as_object_mut) {
            complete_function(function);
        }
    }
    tools
}

fn complete_function(function: &mut Map<String, Value>) {
    fill(function, "description", || json!(""));
    fill(function, "parameters", || json!({}));
    if let Some(parameters) = function
        .get_mut("parameters")
        .and_then(Value::as_object_mut)
    {
        fill(parameters, "type", || json!("object"));
        fill(parameters, "properties", || json!({}));
        complete_properties(parameters, DEPTH_MAX);
    }
}

fn complete_properties(schema: &mut Map<String, Value>, depth: usize) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    let rest = depth.saturating_sub(1);
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        fill(property, "description", || json!(""));
        // Of several types the first that is not null; without a type, a text.
        let types = property.get("type").and_then(Value::as_array);
        let named = types.into_iter().flatten().find(|name| *name != "null");
        if let Some(named) = named.cloned() {
            property.insert("type".to_owned(), named);
        }
        fill(property, "type", || json!("string"));
        if property["type"] == "null" {
            property.insert("type".to_owned(), json!("string"));
        }
        if rest > 0 {
            complete_properties(property, rest);
        }
    }
}

/// Sets a field that is missing or null.
fn fill(object: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> Value) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_objects() {
        for (label, arguments, want) in [
            ("a text", json!("{\"a\": [1]}"), json!({"a": [1]})),
            ("an object", json!({"a": 1}), json!({"a": 1})),
            ("an empty text", json!(" "), json!({})),
            ("null", Value::Null, json!({})),
            ("null as text", json!("null"), json!({})),
            ("an empty list", json!("[]"), json!({})),
            ("a list", json!("[1, 2]"), json!({"arguments": [1, 2]})),
            ("a number", json!(3), json!({"arguments": 3})),
            (
                "cut",
                json!("{\"a\": "),
                json!({"INVALID_JSON": "{\"a\": "}),
            ),
            ("words", json!("a = 1"), json!({"INVALID_JSON": "a = 1"})),
        ] {
            assert_eq!(Value::Object(as_object(arguments)), want, "{label}");
        }
    }

    #[test]
    fn missing_parts_are_filled_and_others_stay() {
        let tools = [
            json!({"type": "function", "function": {"name": "f"}}),
            json!({"type": "function", "function": {"name": "g", "description": "what", "parameters": {
                "type": "object", "properties": {"a": {"type": ["null", "integer"]}, "b": {"type": "null"}, "c": {}},
            }}}),
        ];
        let completed = complete_tools(&tools);
        let expected = json!({"type": "object", "properties": {}});
        assert_eq!(completed[0]["function"]["description"], "");
        assert_eq!(completed[0]["function"]["parameters"], expected);
        let properties = &completed[1]["function"]["parameters"]["properties"];
        let types = ["a", "b", "c"].map(|name| &properties[name]["type"]);
        assert_eq!(types, ["integer", "string", "string"]);
        assert_eq!(completed[1]["function"]["description"], "what");
    }
}
