//! `POST /v1/ai-sdk/chat`: the body that the SDK's default transport sends.
//!
//! The transport sends `id`, `messages`, `trigger` and `messageId`, and whatever the page puts into `body`: the fields
//! of `/v1/chat/completions` are read from there (`model`, `temperature`, `tools`, `response_format` ...).

use super::tool_output::output_content;
use crate::field_table::{self, FieldRow, FieldTable, Treatment};
use crate::fields::{self, Fields, JsonObject, RawJson};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::content_parts::{
    ContentPart, UI_ANSWERS, UI_PARTS, append_content, file_part, parse_part,
};
use crate::shared::generation_fields;
use crate::shared::images::{ImageMembers, TEXT_ALONE};
use crate::shared::messages::{self, message_list, text_message};
use crate::shared::tool_calls::value_of_arguments;
use crate::tool_definitions;
use generate::error::ApiError;
use generate::request::{CONVERSATION_ID_BYTES_MAX, PARTS_MAX};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use text::Message;

/// Fields of this protocol only, and their treatment.
const FIELDS: FieldTable = FieldTable {
    rows: &[no_effect("trigger"), no_effect("messageId")],
};

const fn no_effect(name: &'static str) -> FieldRow {
    FieldRow {
        name,
        treatment: Treatment::NoEffect("every answer is a new message"),
    }
}

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let conversation_id = parse_conversation_id(&mut fields);
    let mut conversation = parse_messages(&mut fields);
    if let Some(system) = fields.string("system") {
        conversation.insert(0, messages::text_message("system", system));
    }
    let tools = tool_definitions::parse_tools(&mut fields);
    let kwargs = messages::template_kwargs(&mut fields);
    let mut params = generation_fields::generation_params(&mut fields, context);
    let tools = params.take_tools(tools);
    params.reasoning_budget = messages::reasoning_budget(&mut fields);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    let mut stream_options = generation_fields::stream_options(&mut fields);
    field_table::CHAT.reject_fields(&mut fields);
    let images = fields.take_images();
    stream_options.ignored_fields = fields.finish_request(&FIELDS)?;
    stream_options.stream = is_streamed;
    stream_options.conversation_id = conversation_id;
    let prompt = messages::prompt("messages", conversation, tools, kwargs);
    Ok(ParsedBody::of_prompts([prompt], params, stream_options).with_images(images))
}

fn parse_conversation_id(fields: &mut Fields<'_>) -> Option<Box<str>> {
    fields.record(
        "id",
        || json!({"maxLength": CONVERSATION_ID_BYTES_MAX, "description": "the chat"}),
    );
    let id = fields.string("id")?;
    if id.len() > CONVERSATION_ID_BYTES_MAX {
        let error_message = format!("must have at most {CONVERSATION_ID_BYTES_MAX} bytes");
        fields.reject("id", error_message);
    }
    Some(id.into())
}

/// Parts without content for the model: a page shows them next to an answer.
const IGNORED_PARTS: [&str; 3] = ["source-url", "source-document", "custom"];
/// States of a tool part whose input is complete.
const COMPLETE_STATES: [&str; 6] = [
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
];

/// Images of a message next to its parts.
const IMAGES: ImageMembers = ImageMembers(&[ATTACHMENTS], "images are parts (file)");
/// The files that the SDK had next to the parts before version 5.
const ATTACHMENTS: &str = "experimental_attachments";

/// Parses the conversation; errors are recorded in `fields`.
pub(super) fn parse_messages(fields: &mut Fields<'_>) -> Vec<Message> {
    let items = message_list(fields, || {
        json!({
            "type": "object", "required": ["role", "parts"],
            "properties": {
                "role": {"enum": ["system", "user", "assistant"]},
                "parts": {"type": "array", "items": {"type": "object", "required": ["type"]}, "maxItems": PARTS_MAX},
            },
        })
    });
    let items = items.unwrap_or_default();
    let mut messages = Vec::new();
    for (index, raw) in items.into_iter().enumerate() {
        add_message(fields, &format!("messages[{index}]"), raw, &mut messages);
    }
    messages
}

fn add_message(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>, out: &mut Vec<Message>) {
    let Some(object) = fields::as_object(raw) else {
        fields.reject(path, "must be an object with a role and parts");
        return;
    };
    let role = object.text("role");
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
            let mut content = Value::String(String::new());
            for (index, raw) in parts.into_iter().enumerate() {
                add_content_part(fields, &format!("{path}.parts[{index}]"), raw, &mut content);
            }
            add_attachments(fields, path, &object, &mut content);
            IMAGES.reject_others(fields, path, &object, false);
            out.push(Message {
                content,
                ..text_message(role, "")
            });
        }
        Some("assistant") => {
            let mut step = Step::default();
            for (index, raw) in parts.into_iter().enumerate() {
                step.add_part(fields, &format!("{path}.parts[{index}]"), raw, out);
            }
            step.finish(out);
            TEXT_ALONE.reject_others(fields, path, &object, true);
        }
        _ => fields.reject(
            format!("{path}.role"),
            "must be one of system, user, assistant",
        ),
    }
}

/// Whether a part has no content for the model.
fn is_ignored(kind: &str) -> bool {
    IGNORED_PARTS.contains(&kind) || kind.starts_with("data-")
}

/// Appends the text or the image of a part of a user or system message; parts of an answer are ignored.
fn add_content_part(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>, out: &mut Value) {
    match part_type(raw).as_ref().map(|(_, kind)| &**kind) {
        Some("step-start" | "reasoning" | "reasoning-file" | "dynamic-tool") => {}
        Some(kind) if is_ignored(kind) || kind.starts_with("tool-") => {}
        Some(_) => append_part(out, parse_part(fields, path, raw, &UI_PARTS)),
        None => fields.reject(path, "must be an object with a type"),
    }
}

fn append_part(out: &mut Value, part: Option<ContentPart>) {
    match part {
        Some(ContentPart::Text(text)) if text.is_empty() => {}
        Some(part) => append_content(out, part.into_content()),
        None => {}
    }
}

/// Appends the files next to the parts.
fn add_attachments(fields: &mut Fields<'_>, path: &str, message: &JsonObject<'_>, out: &mut Value) {
    let Some(raw) = message.get(ATTACHMENTS) else {
        return;
    };
    let files = fields::as_list(raw, PARTS_MAX);
    let files: Option<Vec<_>> =
        files.and_then(|files| files.into_iter().map(fields::as_object).collect());
    let Some(files) = files else {
        let why = format!("must be a list of at most {PARTS_MAX} files");
        return fields.reject(format_args!("{path}.{ATTACHMENTS}"), why);
    };
    for (index, file) in files.iter().enumerate() {
        let path = format!("{path}.{ATTACHMENTS}[{index}]");
        append_part(out, file_part(fields, &path, file, &UI_PARTS));
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
        let Some((part, kind)) = part_type(raw) else {
            fields.reject(path, "must be an object with a type");
            return;
        };
        match &*kind {
            "text" | "file" | "reasoning-file" | "image" => {
                append_text(fields, path, raw, &mut self.text);
            }
            "reasoning" => append_text(fields, path, raw, &mut self.reasoning),
            "step-start" => std::mem::take(self).finish(out),
            "dynamic-tool" => {
                let name = part.text("toolName");
                match name {
                    Some(name) => self.add_tool(fields, path, &name, &part),
                    None => fields.reject(format!("{path}.toolName"), "must be a string"),
                }
            }
            other if is_ignored(other) => {}
            other => match other.strip_prefix("tool-") {
                Some(name) => self.add_tool(fields, path, name, &part),
                None => fields.reject(format!("{path}.type"), "is not a part of a UIMessage"),
            },
        }
    }

    /// Adds a tool call, and the result if there is one. A call with truncated input is left out.
    fn add_tool(&mut self, fields: &mut Fields<'_>, path: &str, name: &str, part: &JsonObject<'_>) {
        let text = |field| part.text(field);
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
            .and_then(|raw| value_of_arguments(raw.get()))
            .unwrap_or_else(|| json!({}));
        self.calls.push(json!({
            "id": id, "type": "function", "function": {"name": name, "arguments": input},
        }));
        let result = match &*state {
            "output-available" => {
                let output = part.get("output");
                output.and_then(|raw| output_content(fields, &format!("{path}.output"), raw))
            }
            "output-error" => text("errorText").map(Value::from),
            "output-denied" => Some("the call was denied".into()),
            _ => None,
        };
        if let Some(content) = result {
            let rest = [("tool_call_id", &*id), ("name", name)];
            let rest = rest.map(|(key, value)| (key.to_owned(), json!(value)));
            self.results.push(Message {
                content,
                rest: rest.into_iter().collect(),
                ..text_message("tool", "")
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
        let message = text_message("assistant", self.text);
        out.push(Message { rest, ..message });
        out.extend(self.results);
    }
}

/// The members and the type of a part.
fn part_type(raw: RawJson<'_>) -> Option<(JsonObject<'_>, Cow<'_, str>)> {
    let part = fields::as_object(raw)?;
    let kind = part.text("type")?;
    Some((part, kind))
}

/// Appends the text of a part of the assistant; a line end separates parts.
fn append_text(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>, out: &mut String) {
    let text = match parse_part(fields, path, raw, &UI_ANSWERS) {
        Some(ContentPart::Text(text)) => text,
        Some(ContentPart::Image(_)) | None => String::new(),
    };
    if !out.is_empty() && !text.is_empty() {
        out.push('\n');
    }
    out.push_str(&text);
}
