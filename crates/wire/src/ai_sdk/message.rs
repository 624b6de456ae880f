//! `UIMessage`s of a request, converted to the messages that chat templates expect.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::request::{MESSAGES_MAX, PARTS_MAX};
use serde_json::{Map, Value, json};
use text::Message;

/// Parts without content for the model: a page shows them beside an answer.
const IGNORED_PARTS: [&str; 3] = ["source-url", "source-document", "custom"];
/// Error message of a part that is a file.
const FILE_PARTS: &str =
    "only text parts: images, sound and files are not supported yet by this server";
/// States of a tool part whose input is complete.
const COMPLETE_STATES: [&str; 6] = [
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
];

/// Parses the conversation; errors are recorded in `fields`.
pub(super) fn parse_messages(fields: &mut Fields<'_>) -> Vec<Message> {
    let Some(items) = fields.array("messages", MESSAGES_MAX) else {
        if fields.raw("messages").is_none() {
            fields.reject("messages", "is required");
        }
        return Vec::new();
    };
    if items.is_empty() {
        fields.reject("messages", "must hold at least one message");
    }
    let mut messages = Vec::new();
    for (index, raw) in items.into_iter().enumerate() {
        add_message(fields, &format!("messages[{index}]"), raw, &mut messages);
    }
    messages
}

fn add_message(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>, out: &mut Vec<Message>) {
    let Some(object) = as_object(raw) else {
        fields.reject(path, "must be an object with a role and parts");
        return;
    };
    let role = object.get("role").and_then(fields::as_text);
    let parts = object
        .get("parts")
        .and_then(|raw| fields::as_list(raw, PARTS_MAX));
    let Some(parts) = parts else {
        let path = format!("{path}.parts");
        fields.reject(path, format!("must be a list of at most {PARTS_MAX} parts"));
        return;
    };
    match role.as_deref() {
        Some(role @ ("system" | "user")) => {
            let mut text = String::new();
            for (index, raw) in parts.into_iter().enumerate() {
                add_text_part(fields, &format!("{path}.parts[{index}]"), raw, &mut text);
            }
            out.push(Message {
                role: role.to_owned(),
                content: Value::String(text),
                rest: Map::new(),
            });
        }
        Some("assistant") => {
            let mut step = Step::default();
            for (index, raw) in parts.into_iter().enumerate() {
                step.add_part(fields, &format!("{path}.parts[{index}]"), raw, out);
            }
            step.finish(out);
        }
        _ => fields.reject(
            format!("{path}.role"),
            "must be one of system, user, assistant",
        ),
    }
}

/// Appends the text of a part of a user or system message; parts of other types are ignored.
fn add_text_part(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>, out: &mut String) {
    let part = as_object(raw);
    let kind = part.as_ref().and_then(|part| part.get("type"));
    match (&part, kind.and_then(fields::as_text).as_deref()) {
        (Some(part), Some("text")) => append_text(fields, path, part, out),
        (Some(_), Some("file")) => fields.reject(path, FILE_PARTS),
        (Some(_), Some(_)) => {}
        _ => fields.reject(path, "must be an object with a type"),
    }
}

/// One step of a message: text, reasoning and tool calls, and the results of these calls.
#[derive(Default)]
struct Step {
    text: String,
    reasoning: String,
    calls: Vec<Value>,
    results: Vec<Message>,
}

impl Step {
    fn add_part(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        raw: RawJson<'_>,
        out: &mut Vec<Message>,
    ) {
        let part = as_object(raw);
        let kind = part.as_ref().and_then(|part| part.get("type"));
        let kind = kind.and_then(fields::as_text);
        let (Some(part), Some(kind)) = (part, kind) else {
            fields.reject(path, "must be an object with a type");
            return;
        };
        match &*kind {
            "text" => append_text(fields, path, &part, &mut self.text),
            "reasoning" => append_text(fields, path, &part, &mut self.reasoning),
            "step-start" => std::mem::take(self).finish(out),
            "dynamic-tool" => {
                let name = part.get("toolName").and_then(fields::as_text);
                match name {
                    Some(name) => self.add_tool(fields, path, &name, &part),
                    None => fields.reject(format!("{path}.toolName"), "must be a string"),
                }
            }
            "file" | "reasoning-file" => fields.reject(path, FILE_PARTS),
            other if IGNORED_PARTS.contains(&other) || other.starts_with("data-") => {}
            other => match other.strip_prefix("tool-") {
                Some(name) => self.add_tool(fields, path, name, &part),
                None => fields.reject(format!("{path}.type"), "is not a part of a UIMessage"),
            },
        }
    }

    /// Adds a tool call, and the result if there is one. A call with truncated input is left out.
    fn add_tool(&mut self, fields: &mut Fields<'_>, path: &str, name: &str, part: &JsonObject<'_>) {
        let text = |field| part.get(field).and_then(fields::as_text);
        let Some(id) = text("toolCallId") else {
            fields.reject(format!("{path}.toolCallId"), "must be a string");
            return;
        };
        let state = text("state").unwrap_or_default();
        if !COMPLETE_STATES.contains(&&*state) {
            return;
        }
        let input: Value = part
            .get("input")
            .and_then(fields::parse_value)
            .unwrap_or_else(|| json!({}));
        self.calls.push(json!({
            "id": id, "type": "function", "function": {"name": name, "arguments": input},
        }));
        let result = match &*state {
            "output-available" => part
                .get("output")
                .and_then(fields::parse_value)
                .map(output_text),
            "output-error" => text("errorText").map(std::borrow::Cow::into_owned),
            "output-denied" => Some("the call was denied".to_owned()),
            _ => None,
        };
        if let Some(content) = result {
            let rest = [("tool_call_id", &*id), ("name", name)];
            let rest = rest.map(|(key, value)| (key.to_owned(), json!(value)));
            self.results.push(Message {
                role: "tool".to_owned(),
                content: Value::String(content),
                rest: rest.into_iter().collect(),
            });
        }
    }

    /// Appends the step as one message of the assistant and one message per result; an empty step appends nothing.
    fn finish(self, out: &mut Vec<Message>) {
        if self.text.is_empty() && self.reasoning.is_empty() && self.calls.is_empty() {
            return;
        }
        let mut rest = Map::new();
        if !self.reasoning.is_empty() {
            rest.insert("reasoning_content".to_owned(), json!(self.reasoning));
        }
        if !self.calls.is_empty() {
            rest.insert("tool_calls".to_owned(), Value::Array(self.calls));
        }
        out.push(Message {
            role: "assistant".to_owned(),
            content: Value::String(self.text),
            rest,
        });
        out.extend(self.results);
    }
}

fn as_object(raw: RawJson<'_>) -> Option<JsonObject<'_>> {
    Some(raw)
        .filter(|raw| fields::json_type(*raw) == JsonType::Object)
        .and_then(fields::parse_value)
}

/// Appends the text of a part; a line end separates parts.
fn append_text(fields: &mut Fields<'_>, path: &str, part: &JsonObject<'_>, out: &mut String) {
    match part.get("text").and_then(fields::as_text) {
        Some(text) => {
            if !out.is_empty() && !text.is_empty() {
                out.push('\n');
            }
            out.push_str(&text);
        }
        None => fields.reject(format!("{path}.text"), "must be a string"),
    }
}

/// The text of a tool's output: a string is taken as text, any other value as JSON.
fn output_text(output: Value) -> String {
    match output {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
