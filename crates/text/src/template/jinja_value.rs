//! Conversion of JSON to minijinja's values.

use super::message::Message;
use minijinja::Value as Jinja;
use serde_json::Value;

/// Converts a JSON value. Keys keep their order; the JSON parser bounds the depth.
pub(super) fn from_json(value: &Value) -> Jinja {
    match value {
        Value::Null => Jinja::from(()),
        Value::Bool(truth) => Jinja::from(*truth),
        Value::Number(number) => from_number(number),
        Value::String(text) => Jinja::from(text.as_str()),
        Value::Array(items) => from_list(items),
        Value::Object(fields) => Jinja::from_pairs(
            fields
                .iter()
                .map(|(name, value)| (name.as_str(), from_json(value))),
        ),
    }
}

pub(super) fn from_list(items: &[Value]) -> Jinja {
    Jinja::from(items.iter().map(from_json).collect::<Vec<_>>())
}

/// Converts messages, with `role` and `content` as the first keys.
pub(super) fn from_messages(messages: &[Message]) -> Jinja {
    Jinja::from(messages.iter().map(from_message).collect::<Vec<_>>())
}

fn from_message(message: &Message) -> Jinja {
    let first = [
        ("role", Jinja::from(message.role.as_str())),
        ("content", from_json(&message.content)),
    ];
    let rest = message
        .rest
        .iter()
        .map(|(name, value)| (name.as_str(), from_json(value)));
    Jinja::from_pairs(first.into_iter().chain(rest))
}

fn from_number(number: &serde_json::Number) -> Jinja {
    if let Some(whole) = number.as_i64() {
        return Jinja::from(whole);
    }
    match number.as_u64() {
        Some(whole) => Jinja::from(whole),
        None => Jinja::from(number.as_f64().unwrap_or(f64::NAN)),
    }
}
