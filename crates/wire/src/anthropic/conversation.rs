//! Anthropic's messages, converted to the messages that chat templates expect.
//!
//! The content of a message is a list of blocks. Consecutive messages of one role are merged, and their texts are
//! joined by line ends. Tool results become separate messages; tool calls and reasoning become members of the
//! assistant's message.

use super::billing_line::without_billing_line;
use super::blocks;
use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::request::{MESSAGES_MAX, PARTS_MAX};
use serde_json::{Map, Value};
use text::Message;

/// A parsed conversation.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// Whether the answer continues the last message, which has the role `assistant`.
    pub(crate) continues: bool,
    /// Tool calls so far: id and name of the tool.
    calls: Vec<(String, String)>,
}

/// Parses `system` and `messages`; `None` on errors, which are recorded in `fields`.
pub(crate) fn parse_conversation(fields: &mut Fields<'_>) -> Option<Conversation> {
    let mut conversation = Conversation::default();
    if let Some(raw) = fields.raw("system") {
        let text = blocks::joined_text(fields, "system", raw)?;
        let kept = without_billing_line(&text);
        // A `system` that was only the billing line is none.
        if kept.len() == text.len() || !kept.is_empty() {
            conversation.add_text("system", kept);
        }
    }
    let Some(turns) = fields.array("messages", MESSAGES_MAX) else {
        if fields.raw("messages").is_none() {
            fields.reject("messages", "is required");
        }
        return None;
    };
    if turns.is_empty() {
        fields.reject("messages", "must hold at least one message");
        return None;
    }
    let mut is_valid = true;
    for (i, turn) in turns.into_iter().enumerate() {
        is_valid &= conversation
            .add_message(fields, &format!("messages[{i}]"), turn)
            .is_some();
    }
    conversation.take_prefill(fields)?;
    is_valid.then_some(conversation)
}

impl Conversation {
    fn add_message(&mut self, fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<()> {
        let Some(turn) = fields::as_object(raw) else {
            fields.reject(path, "must be an object with a role and content");
            return None;
        };
        let role = match turn.get("role").and_then(fields::as_text).as_deref() {
            Some("user") => "user",
            Some("assistant") => "assistant",
            Some("system") => "system",
            _ => {
                let error_message = "must be user, assistant or system";
                fields.reject(format!("{path}.role"), error_message);
                return None;
            }
        };
        let path = format!("{path}.content");
        let Some(content) = turn.get("content") else {
            fields.reject(path, "is required");
            return None;
        };
        if fields::json_type(content) != JsonType::Array {
            let text = blocks::joined_text(fields, &path, content)?;
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
        let kind = block.as_ref().and_then(|block| block.get("type"));
        let kind = kind.and_then(fields::as_text);
        match (role, kind.as_deref(), &block) {
            ("user", Some("tool_result"), Some(block)) => {
                self.add_tool_result(fields, path, block)?;
            }
            ("assistant", Some("tool_use"), Some(block)) => {
                self.add_tool_use(fields, path, block)?;
            }
            ("assistant", Some("thinking"), Some(block)) => {
                let text = blocks::required_string(fields, path, block, "thinking")?;
                let rest = &mut self.message_of_role(role).rest;
                append_line(
                    rest.entry("reasoning_content").or_insert(Value::Null),
                    &text,
                );
            }
            // Encrypted for Anthropic's own servers.
            ("assistant", Some("redacted_thinking"), Some(_)) => {}
            ("assistant", Some(kind), Some(_)) if blocks::is_of_server_tool(kind) => {
                fields.leave_out(path, format!("messages.{kind}"));
            }
            (_, Some(kind), Some(block)) if blocks::has_text(kind) => {
                let text = blocks::block_text(fields, path, block, kind)?;
                self.add_text(role, &text);
            }
            (_, kind, _) => {
                blocks::reject_block(fields, path, role, kind);
                return None;
            }
        }
        Some(())
    }

    /// Appends text to the message of a role.
    fn add_text(&mut self, role: &'static str, text: &str) {
        append_line(&mut self.message_of_role(role).content, text);
    }

    fn add_tool_use(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        block: &JsonObject<'_>,
    ) -> Option<()> {
        let id = blocks::required_string(fields, path, block, "id");
        let name = blocks::required_string(fields, path, block, "name");
        // An input that is no object is fitted to the template later.
        let input = match block.get("input") {
            Some(raw) => fields::parse_value::<Value>(raw),
            None => Some(Value::Null),
        };
        let Some(input) = input else {
            fields.reject(format!("{path}.input"), "must be nested at most 127 deep");
            return None;
        };
        let (id, name) = (id?, name?);
        let call = serde_json::json!({
            "id": id, "type": "function", "function": {"name": name, "arguments": input},
        });
        let rest = &mut self.message_of_role("assistant").rest;
        let calls = rest
            .entry("tool_calls")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(calls) = calls {
            calls.push(call);
        }
        self.calls.push((id, name));
        Some(())
    }

    fn add_tool_result(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        block: &JsonObject<'_>,
    ) -> Option<()> {
        let id = blocks::required_string(fields, path, block, "tool_use_id")?;
        let call = self.calls.iter().rev().find(|(call, _)| *call == id);
        let Some(name) = call.map(|(_, name)| name.clone()) else {
            let error_message = "must be the id of an earlier tool_use block";
            fields.reject(format!("{path}.tool_use_id"), error_message);
            return None;
        };
        let text = match block.get("content") {
            Some(raw) => blocks::joined_text(fields, &format!("{path}.content"), raw)?,
            None => String::new(),
        };
        let mut rest = Map::new();
        rest.insert("tool_call_id".to_owned(), Value::String(id));
        rest.insert("name".to_owned(), Value::String(name));
        if let Some(raw) = block.get("is_error") {
            let Some(is_error) = fields::parse_value::<bool>(raw) else {
                fields.reject(format!("{path}.is_error"), "must be true or false");
                return None;
            };
            rest.insert("is_error".to_owned(), Value::Bool(is_error));
        }
        self.messages.push(Message {
            role: "tool".to_owned(),
            content: Value::String(text),
            rest,
        });
        Some(())
    }

    /// The last message if it has this role, else a new one.
    fn message_of_role(&mut self, role: &'static str) -> &mut Message {
        if self.messages.last().is_none_or(|last| last.role != role) {
            self.messages.push(Message {
                role: role.to_owned(),
                content: Value::String(String::new()),
                rest: Map::new(),
            });
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    /// Handles a last message of the assistant: its text is the prefix of the answer.
    fn take_prefill(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let Some(last) = self.messages.last().filter(|last| last.role == "assistant") else {
            return Some(());
        };
        if last.rest.contains_key("tool_calls") {
            let error_message = "must not end with tool_use: its tool_result has to follow";
            fields.reject("messages", error_message);
            return None;
        }
        let text = last.content.as_str().unwrap_or_default();
        if text.ends_with(char::is_whitespace) {
            let error_message = "the last assistant message must not end with white space";
            fields.reject("messages", error_message);
            return None;
        }
        if text.is_empty() {
            self.messages.pop();
        } else {
            self.continues = true;
        }
        Some(())
    }
}

/// Appends text on a new line.
fn append_line(to: &mut Value, text: &str) {
    match to {
        Value::String(so_far) if !so_far.is_empty() => {
            so_far.push('\n');
            so_far.push_str(text);
        }
        other => *other = Value::String(text.to_owned()),
    }
}
