//! Messages of a request, and the variables of the chat template, in the fields that OpenAI's, Ollama's and this server's
//! protocols share.

use super::content_parts;
use super::images::ImageMembers;
use super::tool_calls;
use crate::fields::{self, Fields, JsonObject, JsonType, OrReject, RawJson};
use generate::request::{MESSAGES_MAX, PARTS_MAX, Prompt};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use text::Message;

/// Roles of messages.
pub(crate) const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
/// The role of results before `tool`.
const FORMER_ROLE: &str = "function";
/// Images of a message of chat completions.
const IMAGES: ImageMembers = ImageMembers(&[], "images are parts of content (image_url)");

/// A conversation that grows by parts of messages.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// Tool calls so far: id and name of the tool.
    calls: Vec<(String, String)>,
}

impl Conversation {
    /// The last message if it has this role, else a new one.
    pub(crate) fn message_of_role(&mut self, role: &str) -> &mut Message {
        if self.messages.last().is_none_or(|last| last.role != role) {
            self.messages.push(text_message(role, ""));
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    /// Adds a tool call to the message of the assistant.
    pub(crate) fn add_call(&mut self, id: String, name: String, arguments: &Value) {
        let call = json!({
            "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
        });
        let calls = self.message_of_role("assistant").rest.entry("tool_calls");
        if let Value::Array(calls) = calls.or_insert_with(|| Value::Array(Vec::new())) {
            calls.push(call);
        }
        self.calls.push((id, name));
    }

    /// Whether a call has this id.
    pub(crate) fn has_call(&self, id: &str) -> bool {
        self.calls.iter().any(|(call, _)| call == id)
    }

    /// Adds the result of the last call with this id.
    pub(crate) fn add_result(
        &mut self,
        id: String,
        content: impl Into<Value>,
    ) -> &mut Map<String, Value> {
        let mut message = Message {
            content: content.into(),
            ..text_message("tool", "")
        };
        let call = self.calls.iter().rev().find(|(call, _)| *call == id);
        let name = call.map(|(_, name)| name.clone()).unwrap_or_default();
        for (member, value) in [("tool_call_id", id), ("name", name)] {
            message.rest.insert(member.to_owned(), Value::String(value));
        }
        self.messages.push(message);
        let last = self.messages.len() - 1;
        &mut self.messages[last].rest
    }
}

/// Parses `messages`; errors are recorded in `fields`.
pub(crate) fn parse_messages(fields: &mut Fields<'_>) -> Vec<Message> {
    let items = message_list(fields, || message_schema(Some(FORMER_ROLE)));
    let items = items.unwrap_or_default().into_iter();
    items
        .enumerate()
        .filter_map(|(i, raw)| parse_message(fields, &format!("messages[{i}]"), raw))
        .collect()
}

/// The items of `messages`, at least one, and each of this schema; errors are recorded in `fields`.
pub(crate) fn message_list<'a>(
    fields: &mut Fields<'a>,
    schema: impl FnOnce() -> Value,
) -> Option<Vec<RawJson<'a>>> {
    fields.record("messages", || json!({"minItems": 1, "items": schema()}));
    let items = fields.array("messages", MESSAGES_MAX);
    match &items {
        None if fields.raw("messages").is_none() => fields.reject("messages", "is required"),
        Some(items) if items.is_empty() => {
            fields.reject("messages", "must hold at least one message");
        }
        _ => {}
    }
    items.filter(|items| !items.is_empty())
}

/// The schema of a message.
pub(crate) fn message_schema(former_role: Option<&str>) -> Value {
    let roles: Vec<&str> = ROLES.into_iter().chain(former_role).collect();
    json!({"type": "object", "required": ["role"], "properties": {
        "role": {"enum": roles}, "content": chat_schema(true),
    }})
}

/// The schema of a content of chat completions, where images are read and where they are not.
pub(crate) fn chat_schema(has_images: bool) -> Value {
    let text = json!({"type": "object", "required": ["type", "text"], "properties": {
        "type": {"enum": ["text", "input_text", "output_text"]}, "text": {"type": "string"},
    }});
    let refusal = json!({"type": "object", "required": ["type", "refusal"], "properties": {
        "type": {"const": "refusal"}, "refusal": {"type": "string"},
    }});
    let image = json!({"type": "object", "required": ["type", "image_url"], "properties": {
        "type": {"enum": ["image_url", "input_image"]},
        "image_url": {"anyOf": [{"type": "string"}, {
            "type": "object", "required": ["url"], "properties": {
                "url": {"type": "string", "description": "a data URL"},
                "detail": {"enum": ["low", "auto", "high", "original", null]},
            },
        }]},
    }});
    let parts = [text, refusal]
        .into_iter()
        .chain(has_images.then_some(image));
    let part = json!({"anyOf": parts.collect::<Value>()});
    json!({"anyOf": [
        {"type": "string"}, {"type": "null"}, {"type": "array", "items": part, "maxItems": PARTS_MAX},
    ]})
}

/// Parses one message; errors are recorded in `fields`.
fn parse_message(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<Message> {
    let (object, role) = message_object(fields, path, raw, Some(FORMER_ROLE))?;
    let mut rest = string_members(
        fields,
        path,
        &object,
        &[
            ("name", "name"),
            ("tool_call_id", "tool_call_id"),
            ("reasoning", "reasoning_content"),
            ("reasoning_content", "reasoning_content"),
        ],
    );
    let calls = match object.get("tool_calls") {
        Some(raw) => tool_calls::earlier_calls(fields, path, raw),
        None => tool_calls::former_call(fields, path, &object),
    };
    if let Some(calls) = calls {
        rest.insert("tool_calls".to_owned(), calls);
    }
    let is_answer = role.as_deref() == Some("assistant");
    IMAGES.reject_others(fields, path, &object, is_answer);
    // Tools may return nothing.
    let may_be_silent = is_answer || matches!(role.as_deref(), Some("tool" | FORMER_ROLE));
    let (content, refusal) = (object.get("content"), object.get("refusal"));
    let (name, content) = match (content, refusal.filter(|_| is_answer)) {
        (None, Some(refusal)) => ("refusal", Some(refusal)),
        (content, _) => ("content", content),
    };
    let path = format!("{path}.{name}");
    let types = match (is_answer, may_be_silent) {
        (true, _) => &content_parts::CHAT_ANSWERS,
        (false, true) => &content_parts::CHAT_RESULTS,
        (false, false) => &content_parts::CHAT,
    };
    let content = match content {
        Some(raw) => content_parts::content(fields, &path, raw, types)?,
        // Chat templates that concatenate contents need a string.
        None if may_be_silent => Value::String(String::new()),
        None => {
            fields.reject(path, "is required");
            return None;
        }
    };
    let role = role.map(|role| {
        if role == FORMER_ROLE {
            "tool".to_owned()
        } else {
            role
        }
    });
    Some(Message {
        role: role?,
        content,
        rest,
    })
}

/// The members and the role of a message; errors are recorded in `fields`.
pub(crate) fn message_object<'a>(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'a>,
    former_role: Option<&str>,
) -> Option<(JsonObject<'a>, Option<String>)> {
    let Some(object) = fields::as_object(raw) else {
        fields.reject(path, "must be an object with a role and content");
        return None;
    };
    let role = object.text("role");
    let role = role
        .filter(|role| ROLES.contains(&&**role) || former_role == Some(&**role))
        .or_reject(
            fields,
            format_args!("{path}.role"),
            "must be one of system, developer, user, assistant, tool",
        );
    let role = role.map(Cow::into_owned);
    Some((object, role))
}

/// String members of a message, under the names that chat templates know; errors are recorded in `fields`.
pub(crate) fn string_members(
    fields: &mut Fields<'_>,
    path: &str,
    object: &JsonObject<'_>,
    names: &[(&str, &str)],
) -> Map<String, Value> {
    let mut members = Map::new();
    for (name, known_as) in names {
        if object.get(name).is_some()
            && let Some(text) = content_parts::required_string(fields, path, object, name)
        {
            members.insert((*known_as).to_owned(), Value::String(text));
        }
    }
    members
}

/// A message with a text, and nothing else.
pub(crate) fn text_message(role: &str, text: impl Into<String>) -> Message {
    Message {
        role: role.to_owned(),
        content: Value::String(text.into()),
        rest: Map::new(),
    }
}

/// The prompt of a conversation in a field.
pub(crate) fn prompt(
    field: &'static str,
    messages: Vec<Message>,
    tools: Vec<Value>,
    kwargs: Map<String, Value>,
) -> Prompt {
    Prompt::Conversation {
        field,
        messages,
        tools,
        continues: false,
        kwargs,
    }
}

/// Parses a field with prompts that are not messages: a string, a list of strings, token ids, or lists of token ids. The list has
/// at most `max` items, which errors call `noun`; `check` may reject a prompt. Errors are recorded in `fields`.
pub(crate) fn parse_prompts(
    fields: &mut Fields<'_>,
    name: &str,
    (max, noun): (usize, &str),
    vocab: usize,
    check: impl Fn(&mut Fields<'_>, &str, Prompt) -> Option<Prompt>,
) -> Vec<Prompt> {
    let parse = |fields: &mut Fields<'_>, path: &str, raw| {
        let prompt = parse_prompt(fields, path, raw, vocab)?;
        check(fields, path, prompt)
    };
    let Some(raw) = fields.raw(name).or_reject(fields, name, "is required") else {
        return Vec::new();
    };
    if fields::as_text(raw).is_some() || fields::begins_with_number(raw) {
        return parse(fields, name, raw).into_iter().collect();
    }
    match fields::as_list(raw, usize::MAX) {
        Some(items) if items.len() > max => {
            fields.reject(name, format_args!("must hold at most {max} {noun}"));
            Vec::new()
        }
        Some(items) if !items.is_empty() => {
            let items = items.into_iter().enumerate();
            let prompts = items.map(|(i, item)| parse(fields, &format!("{name}[{i}]"), item));
            prompts.flatten().collect()
        }
        _ => {
            let constraint =
                "must be a string, a list of strings, token ids, or lists of token ids";
            fields.reject(name, constraint);
            Vec::new()
        }
    }
}

fn parse_prompt(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    vocab: usize,
) -> Option<Prompt> {
    if let Some(text) = fields::as_text(raw) {
        return Some(Prompt::Text(text.into_owned()));
    }
    if fields::json_type(raw) != JsonType::Array {
        fields.reject(path, "must be a string or a list of token ids");
        return None;
    }
    let ids = fields.ids(path, raw, vocab)?;
    let ids = Some(ids).filter(|ids| !ids.is_empty());
    let ids = ids.or_reject(fields, path, "must hold at least one token id");
    ids.map(Prompt::Ids)
}

/// Parses the reasoning budget: `reasoning.max_tokens`, or Anthropic's `thinking.budget_tokens`.
pub(crate) fn reasoning_budget(fields: &mut Fields<'_>) -> Option<u64> {
    let mut found = None;
    for (object, name) in [("reasoning", "max_tokens"), ("thinking", "budget_tokens")] {
        let range = 0..=i128::from(u32::MAX);
        let max = fields.within(object, |fields| fields.integer_as(name, range));
        found = found.or(max);
    }
    found
}

/// Parses the variables of the chat template: `chat_template_kwargs`, and those that follow from `reasoning_effort`
/// and `reasoning`.
pub(crate) fn template_kwargs(fields: &mut Fields<'_>) -> Map<String, Value> {
    let mut kwargs: Map<String, Value> = Map::new();
    let named = fields.string("reasoning_effort");
    let named = named.map(Cow::into_owned);
    let reasoning = |fields: &mut Fields<'_>| {
        let effort = fields.string("effort").map(Cow::into_owned);
        (effort, fields.boolean("enabled"))
    };
    let (effort, enabled) = fields.within("reasoning", reasoning);
    if let Some(effort) = named.or(effort) {
        // Chat templates read one variable or the other.
        kwargs.insert("enable_thinking".to_owned(), (effort != "none").into());
        kwargs.insert("reasoning_effort".to_owned(), Value::String(effort));
    }
    if let Some(enabled) = enabled {
        kwargs.insert("enable_thinking".to_owned(), Value::Bool(enabled));
    }
    if let Some(given) = fields.object("chat_template_kwargs") {
        for (name, raw) in given.entries() {
            match fields::parse_value(raw) {
                Some(value) => {
                    kwargs.insert(name.to_owned(), value);
                }
                None => fields.reject(
                    format!("chat_template_kwargs.{name}"),
                    fields::VALUE_MESSAGE,
                ),
            }
        }
    }
    kwargs
}
