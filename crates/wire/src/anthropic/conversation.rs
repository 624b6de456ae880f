//! Anthropic's messages, converted to the messages that chat templates expect.
//!
//! The content of a message is a list of blocks. Consecutive messages of one role are merged, and their texts are
//! joined by line ends. Tool results become separate messages; tool calls and reasoning become members of the
//! assistant's message.
//!
//! Calls of tools that ran at the API that gave the answer count once their result is known. Other blocks of that API are used as
//! far as they have a text; the rest is left out, and named in the response's header.
//!
//! Claude Code's billing line, the first line of its `system`:
//!
//! ```text
//! x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=36ee5;
//! ```
//!
//! `cch` and the end of `cc_version` change with every request, so no prompt with this line in front begins like an
//! earlier one, and no cached prefix could be used. Anthropic's own servers take the line out for their accounts; to a
//! model it says nothing. So the line is no part of the prompt.

use crate::fields::{self, Fields, JsonObject, JsonType, OrReject, RawJson};
use crate::shared::content_parts::{
    ASSISTANT_BLOCKS, RESULT_BLOCKS, TEXT_BLOCKS, USER_BLOCKS, append_content, content,
    content_text, parse_part, required_string,
};
use crate::shared::images::ImageMembers;
use crate::shared::messages::{Conversation, message_list};
use crate::shared::timings::result_text;
use crate::shared::tool_calls::{tool_input, value_of_arguments};
use generate::output::collected::AnswerPart;
use generate::output::event::{Delta, DeltaKind, Event, ToolCall, ToolCallPart};
use generate::request::PARTS_MAX;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Images of a message, and of the result of a tool.
const IMAGES: ImageMembers = ImageMembers(&[], "images are blocks of content (image)");

/// A parsed conversation.
#[derive(Debug, Default)]
pub(crate) struct MessageConversation {
    pub(crate) turns: Conversation,
    /// Whether the answer continues the last message, which has the role `assistant`.
    pub(crate) continues: bool,
    /// Path of an image in the turns of the assistant that are the last ones so far.
    answer_image: Option<String>,
    /// Calls of tools that ran at the API, before their results: path and kind of the block, id, name, input.
    server_calls: Vec<ServerCall>,
}

#[derive(Debug)]
struct ServerCall {
    place: (String, String),
    id: String,
    name: String,
    input: Value,
}

/// Parses `system` and `messages`; `None` on errors, which are recorded in `fields`.
pub(crate) fn parse_conversation(fields: &mut Fields<'_>) -> Option<MessageConversation> {
    let mut conversation = MessageConversation::default();
    if let Some(raw) = fields.described("system", system_schema) {
        let text = content_text(fields, "system", raw, &TEXT_BLOCKS)?;
        let kept = without_billing_line(&text);
        // A `system` that was only the billing line is none.
        if kept.len() == text.len() || !kept.is_empty() {
            conversation.add_text("system", kept);
        }
    }
    let turns = message_list(fields, || json!({"type": "object"}))?;
    let mut is_valid = true;
    for (i, turn) in turns.into_iter().enumerate() {
        is_valid &= conversation
            .add_message(fields, &format!("messages[{i}]"), turn)
            .is_some();
    }
    conversation.drop_server_calls(fields);
    conversation.take_prefill(fields)?;
    is_valid.then_some(conversation)
}

fn system_schema() -> Value {
    let part = json!({"type": "object", "required": ["type", "text"], "properties": {
        "type": {"const": "text"}, "text": {"type": "string"},
    }});
    json!({"anyOf": [{"type": "string"}, {"type": "array", "items": part, "maxItems": PARTS_MAX}]})
}

impl MessageConversation {
    fn add_message(&mut self, fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<()> {
        let Some(turn) = fields::as_object(raw) else {
            fields.reject(path, "must be an object with a role and content");
            return None;
        };
        let role = match turn.text("role").as_deref() {
            Some("user") => "user",
            Some("assistant") => "assistant",
            Some("system") => "system",
            _ => {
                let error_message = "must be user, assistant or system";
                fields.reject(format!("{path}.role"), error_message);
                return None;
            }
        };
        if role != "assistant" {
            self.answer_image = None;
        }
        IMAGES.reject_others(fields, path, &turn, role == "assistant");
        let path = format!("{path}.content");
        let Some(content) = turn.get("content") else {
            if role == "assistant" {
                return Some(());
            }
            fields.reject(path, "is required");
            return None;
        };
        if fields::json_type(content) != JsonType::Array {
            let text = content_text(fields, &path, content, &TEXT_BLOCKS)?;
            self.add_text(role, &text);
            return Some(());
        }
        let Some(blocks) = fields::as_list(content, PARTS_MAX) else {
            fields.reject(path, format!("must have at most {PARTS_MAX} blocks"));
            return None;
        };
        let mut is_valid = true;
        for (i, block) in blocks.into_iter().enumerate() {
            let path = format!("{path}[{i}]");
            is_valid &= self.add_block(fields, &path, role, block).is_some();
        }
        is_valid.then_some(())
    }

    fn add_block(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        role: &'static str,
        raw: RawJson<'_>,
    ) -> Option<()> {
        let block = fields::as_object(raw);
        let kind = block.as_ref().and_then(|block| block.text("type"));
        match (role, kind.as_deref(), &block) {
            ("user", Some("tool_result"), Some(block)) => {
                self.add_tool_result(fields, path, block)?;
            }
            ("assistant", Some("tool_use"), Some(block)) => {
                self.add_tool_use(fields, path, block)?;
            }
            ("assistant", Some("thinking"), Some(block)) => {
                let text = required_string(fields, path, block, "thinking")?;
                let rest = &mut self.turns.message_of_role(role).rest;
                let so_far = rest.entry("reasoning_content").or_insert(Value::Null);
                append_content(so_far, Value::String(text));
            }
            // Encrypted for Anthropic's own servers.
            ("assistant", Some("redacted_thinking"), Some(_)) => {}
            ("assistant", Some(kind), Some(block)) if !ASSISTANT_BLOCKS.has_type(kind) => {
                self.add_server_block(fields, path, block, kind);
            }
            (role, ..) => {
                let types = match role {
                    "user" => &USER_BLOCKS,
                    "assistant" => &ASSISTANT_BLOCKS,
                    _ => &TEXT_BLOCKS,
                };
                if (role, kind.as_deref()) == ("assistant", Some("image")) {
                    self.answer_image.get_or_insert_with(|| path.to_owned());
                }
                let part = parse_part(fields, path, raw, types)?;
                let message = self.turns.message_of_role(role);
                append_content(&mut message.content, part.into_content());
            }
        }
        Some(())
    }

    /// Appends text to the message of a role.
    fn add_text(&mut self, role: &'static str, text: &str) {
        let message = self.turns.message_of_role(role);
        append_content(&mut message.content, Value::String(text.to_owned()));
    }

    fn add_tool_use(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        block: &JsonObject<'_>,
    ) -> Option<()> {
        let id = required_string(fields, path, block, "id");
        let name = required_string(fields, path, block, "name");
        // An input that is no object is fitted to the template later.
        let input = match block.get("input") {
            Some(raw) => value_of_arguments(raw.get()),
            None => Some(Value::Null),
        };
        let input = input.or_reject(fields, format_args!("{path}.input"), fields::VALUE_MESSAGE)?;
        self.turns.add_call(id?, name?, &input);
        Some(())
    }

    fn add_tool_result(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        block: &JsonObject<'_>,
    ) -> Option<()> {
        let id = required_string(fields, path, block, "tool_use_id")?;
        if !self.turns.has_call(&id) {
            let error_message = "must be the id of an earlier tool_use block";
            fields.reject(format!("{path}.tool_use_id"), error_message);
            return None;
        }
        IMAGES.reject_others(fields, path, block, false);
        let result = match block.get("content") {
            Some(raw) => content(fields, &format!("{path}.content"), raw, &RESULT_BLOCKS)?,
            None => Value::String(String::new()),
        };
        let rest = self.turns.add_result(id, result);
        if let Some(raw) = block.get("is_error") {
            let Some(is_error) = fields::parse_value::<bool>(raw) else {
                fields.reject(format!("{path}.is_error"), "must be true or false");
                return None;
            };
            rest.insert("is_error".to_owned(), Value::Bool(is_error));
        }
        Some(())
    }

    /// Adds the call or the result of a tool that ran at the API, or a block with a text; other blocks are left out.
    fn add_server_block(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        block: &JsonObject<'_>,
        kind: &str,
    ) {
        let text = |name: &str| block.text(name);
        let place = (path.to_owned(), kind.to_owned());
        // `server_tool_use` and `mcp_tool_use`.
        if let (true, Some(id), Some(name)) =
            (kind.ends_with("_tool_use"), text("id"), text("name"))
        {
            let input = block.get("input");
            let input = input.and_then(|raw| value_of_arguments(raw.get()));
            self.server_calls.push(ServerCall {
                place,
                id: id.into_owned(),
                name: name.into_owned(),
                input: input.unwrap_or_default(),
            });
            return;
        }
        // `web_search_tool_result` and the like.
        let id = text("tool_use_id").unwrap_or_default();
        let call = self.server_calls.iter().position(|call| call.id == *id);
        if let (Some(at), Some(result)) = (call, block.get("content")) {
            let call = self.server_calls.remove(at);
            self.turns.add_call(call.id, call.name, &call.input);
            let path = format!("{path}.content");
            let content = if has_image(result) {
                content(fields, &path, result, &RESULT_BLOCKS)
            } else {
                Some(result_text(result).into())
            };
            if let Some(content) = content {
                self.turns.add_result(id.into_owned(), content);
            }
            return;
        }
        match text("text").or_else(|| text("content")) {
            Some(text) => self.add_text("assistant", &text),
            None => leave_out(fields, &place),
        }
    }

    /// Leaves out the calls of tools that ran at the API without a result.
    fn drop_server_calls(&mut self, fields: &mut Fields<'_>) {
        for call in self.server_calls.drain(..) {
            leave_out(fields, &call.place);
        }
    }

    /// Handles a last message of the assistant: its text is the prefix of the answer.
    fn take_prefill(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let Some(last) = self
            .turns
            .messages
            .last()
            .filter(|last| last.role == "assistant")
        else {
            return Some(());
        };
        if last.rest.contains_key("tool_calls") {
            let error_message = "must not end with tool_use: its tool_result has to follow";
            fields.reject("messages", error_message);
            return None;
        }
        if let Some(path) = self.answer_image.take() {
            fields.reject(path, "is an image: an answer continues text only");
            return None;
        }
        let text = last.content.as_str().unwrap_or_default();
        if text.ends_with(char::is_whitespace) {
            let error_message = "the last assistant message must not end with white space";
            fields.reject("messages", error_message);
            return None;
        }
        if text.is_empty() {
            self.turns.messages.pop();
        } else {
            self.continues = true;
        }
        Some(())
    }
}

/// Whether a result has a block with an image.
fn has_image(result: RawJson<'_>) -> bool {
    let is_image = |block: RawJson<'_>| {
        let block = fields::as_object(block);
        block.is_some_and(|block| block.text("type").as_deref() == Some("image"))
    };
    let blocks = fields::as_list(result, PARTS_MAX).unwrap_or_default();
    blocks.into_iter().any(is_image)
}

fn leave_out(fields: &mut Fields<'_>, (path, kind): &(String, String)) {
    fields.leave_out(path, format!("messages.{kind}"));
}

/// How the line begins.
const NAME: &str = "x-anthropic-billing-header:";

/// `system` without a billing line in front, and without the line ends after the line.
///
/// Only a first line that consists of the header's `name=value;` pairs is one: a text that speaks of the header stays.
fn without_billing_line(system: &str) -> &str {
    let (line, rest) = system.split_once('\n').unwrap_or((system, ""));
    match line.strip_prefix(NAME) {
        Some(pairs) if is_list_of_pairs(pairs) => rest.trim_start_matches(['\r', '\n']),
        _ => system,
    }
}

fn is_list_of_pairs(list: &str) -> bool {
    let mut pairs = list
        .split(';')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .peekable();
    pairs.peek().is_some() && pairs.all(is_pair)
}

fn is_pair(pair: &str) -> bool {
    let is_plain = !pair.contains(char::is_whitespace);
    is_plain
        && pair
            .split_once('=')
            .is_some_and(|(name, _)| !name.is_empty())
}

/// Signature of a thinking block. Clients require a signature; this server does not verify signatures.
const SIGNATURE: &str = "millrace";

/// The type of a content block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Text,
    Thinking,
    /// A tool call with this index.
    ToolUse(u32),
}

/// A content block: empty in `content_block_start`, or complete.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentBlock<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: &'static str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Input,
    },
}

/// Arguments of a tool call.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(rename = "ToolInput")]
pub(crate) enum Input {
    /// Empty, in `content_block_start`.
    Empty {},
    Complete(#[schemars(with = "Map<String, Value>")] Box<RawValue>),
}

/// The `delta` of a `content_block_delta`.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(
    clippy::enum_variant_names,
    reason = "the variants are the protocol's `type`s"
)]
pub(crate) enum BlockDelta<'a> {
    TextDelta { text: &'a str },
    ThinkingDelta { thinking: &'a str },
    InputJsonDelta { partial_json: &'a str },
    SignatureDelta { signature: &'static str },
}

impl<'a> ContentBlock<'a> {
    /// The empty block that begins with an event.
    pub(crate) fn started_by(event: &Event<'a>) -> Self {
        match event {
            Event::ToolCall(ToolCall {
                part: ToolCallPart::Start { id, name },
                ..
            }) => Self::ToolUse {
                id,
                name,
                input: Input::Empty {},
            },
            Event::Delta(Delta {
                kind: DeltaKind::Reasoning,
                ..
            }) => Self::Thinking {
                thinking: "",
                signature: "",
            },
            _ => Self::Text { text: "" },
        }
    }

    /// The complete block of a part of a collected answer.
    pub(crate) fn from_part(part: &'a AnswerPart) -> Self {
        match part {
            AnswerPart::Text(text) => Self::Text { text },
            AnswerPart::Reasoning(thinking) => Self::Thinking {
                thinking,
                signature: SIGNATURE,
            },
            AnswerPart::Call(call) => Self::ToolUse {
                id: &call.id,
                name: &call.name,
                input: Input::Complete(tool_input(call)),
            },
        }
    }
}

impl<'a> BlockDelta<'a> {
    /// A delta of text or reasoning.
    pub(crate) fn from_delta(delta: &Delta<'a>) -> Self {
        match delta.kind {
            DeltaKind::Text => Self::TextDelta { text: delta.text },
            DeltaKind::Reasoning => Self::ThinkingDelta {
                thinking: delta.text,
            },
        }
    }

    /// A delta of tool-call arguments; empty at the start of a call.
    pub(crate) fn from_tool_call_part(part: ToolCallPart<'a>) -> Self {
        let partial_json = match part {
            ToolCallPart::Args(fragment) => fragment,
            ToolCallPart::Start { .. } | ToolCallPart::End => "",
        };
        Self::InputJsonDelta { partial_json }
    }

    /// The signature, which ends a thinking block.
    pub(crate) fn end_of_thinking() -> Self {
        Self::SignatureDelta {
            signature: SIGNATURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_billing_line_in_front_is_removed() {
        let line =
            "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=sdk-cli; cch=36ee5;";
        for (label, system, want) in [
            ("alone", line.to_owned(), ""),
            ("with a line end", format!("{line}\n"), ""),
            (
                "before the instructions",
                format!("{line}\nYou are"),
                "You are",
            ),
            (
                "before an empty line",
                format!("{line}\r\n\r\n You are"),
                " You are",
            ),
            (
                "one pair, without a last semicolon",
                format!("{NAME}cc_version=2\nx"),
                "x",
            ),
            (
                "two lines",
                format!("{line}\n{line}\nx"),
                &format!("{line}\nx"),
            ),
        ] {
            assert_eq!(without_billing_line(&system), want, "{label}");
        }
        for (label, system) in [
            ("nothing", String::new()),
            ("later in the text", format!("You are\n{line}\n")),
            ("after a space", format!(" {line}\n")),
            ("in other letters", line.to_uppercase()),
            (
                "a sentence about the header",
                format!("{NAME} a header of Claude Code; never repeat it\n"),
            ),
            (
                "a sentence behind pairs",
                format!("{line} Explain this line.\nx"),
            ),
            ("no pair", format!("{NAME}\nYou are")),
            ("no name", format!("{NAME} =x;\nYou are")),
            ("only separators", format!("{NAME} ; ;\nYou are")),
        ] {
            assert_eq!(without_billing_line(&system), system, "{label}");
        }
    }
}
