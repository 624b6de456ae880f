//! Texts of messages that are merged.

use super::message::Message;
use serde_json::Value;
use std::borrow::Cow;

/// Between texts that were separate messages.
const BLANK_LINE: &str = "\n\n";
/// Fields with a message's reasoning.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// Appends the text, the reasoning and the further fields of a message. Of two other fields with one name the first stays.
pub(super) fn append_message(message: &mut Message, next: Message) {
    append_text(message, &next.content);
    for (name, value) in next.rest {
        let is_reasoning = REASONING.contains(&name.as_str());
        match (message.rest.entry(name).or_insert(Value::Null), value) {
            (said @ Value::Null, value) => *said = value,
            (Value::String(text), Value::String(more)) if is_reasoning => join(text, &more),
            _ => {}
        }
    }
}

/// Appends a text behind a blank line. The time does not depend on the text so far.
pub(super) fn append_text(message: &mut Message, more: &Value) {
    if !message.content.is_string() {
        let text = content_text(&message.content).into_owned();
        message.content = Value::String(text);
    }
    let more = content_text(more);
    if let Value::String(text) = &mut message.content {
        join(text, &more);
    }
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str(BLANK_LINE);
    }
    text.push_str(more);
}

/// Puts a text and a blank line before the message's.
pub(super) fn prepend_text(message: &mut Message, before: &Value) {
    let after = std::mem::replace(&mut message.content, before.clone());
    append_text(message, &after);
}

/// The text of a message's content: a string, or a list of parts with texts.
fn content_text(content: &Value) -> Cow<'_, str> {
    match content {
        Value::Null => "".into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| match &part["text"] {
                Value::String(text) => text.as_str().into(),
                _ => content_text(part),
            });
            texts.collect::<Vec<_>>().join("\n").into()
        }
        other => other.to_string().into(),
    }
}
