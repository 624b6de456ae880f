//! Arguments of earlier tool calls as objects, which chat templates expect.

use super::message::Message;
use serde_json::{Map, Value, json};

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
}
