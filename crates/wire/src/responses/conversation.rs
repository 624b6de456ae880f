//! Input items, converted to the messages that chat templates expect, and to the items that are stored.
//!
//! Output items of a response are valid input items, so a continued conversation is the list of all items so far, in
//! order. Tool calls and reasoning become members of the assistant's message.

use super::foreign_items::PendingCall;
use super::item_references::ItemReferences;
use super::tools::ToolParser;
use crate::fields::{self, Fields, JsonObject, RawJson};
use crate::request_parser::HistoryLookup;
use crate::shared::content_parts::{
    RESPONSES, RESPONSES_RESULTS, content_text, parts_text, required_string,
};
use crate::shared::messages::{Conversation, text_message};
use crate::shared::tool_calls::{parse_arguments, value_of_arguments};
use generate::request::MESSAGES_MAX;
use generate::tools::{function_name, input_arguments};
use serde_json::{Map, Value, json};

/// Error message for a list of items that were all left out.
const NOTHING_LEFT_MESSAGE: &str = "has no item that this server can use: message, function_call, \
    function_call_output, custom_tool_call, custom_tool_call_output, additional_tools, reasoning, or a call with its output";

/// The conversation parsed so far.
#[derive(Debug, Default)]
pub(crate) struct ConversationBuilder {
    pub(crate) turns: Conversation,
    /// Tools of the items so far.
    pub(crate) tools: ToolParser,
    /// Calls of tools that are no functions, before their results.
    pub(super) pending: Vec<PendingCall>,
}

/// Parses `input` and returns the items to be stored: each as JSON, without an id where the request gave none. `None`
/// on errors, which are recorded in `fields`.
pub(crate) fn parse_input(
    fields: &mut Fields<'_>,
    conversation: &mut ConversationBuilder,
    history: &HistoryLookup<'_>,
) -> Option<Vec<Map<String, Value>>> {
    let schema = || {
        json!({"anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "object"}, "minItems": 1},
        ]})
    };
    let Some(raw) = fields.described("input", schema) else {
        fields.reject("input", "is required");
        return None;
    };
    if let Some(text) = fields::as_text(raw) {
        conversation.add_text("user", text.clone().into_owned());
        return Some(vec![message_item("user", "input_text", &text)]);
    }
    let items = fields::as_list(raw, MESSAGES_MAX).filter(|items| !items.is_empty());
    let Some(items) = items else {
        let error_message = format!("must be a string or a list of 1 to {MESSAGES_MAX} items");
        fields.reject("input", error_message);
        return None;
    };
    let mut references = ItemReferences::new(history);
    let read = |(i, item): (usize, RawJson<'_>)| {
        let path = format!("input[{i}]");
        match referenced_id(item) {
            Some(id) => conversation.add_referenced(fields, &path, references.find(&id).as_deref()),
            None => conversation.add_item(fields, &path, item),
        }
    };
    let stored: Vec<_> = items.into_iter().enumerate().map(read).collect();
    conversation.drop_pending(fields);
    let mut roles = conversation
        .turns
        .messages
        .iter()
        .map(|message| &*message.role);
    let has_turn = roles.any(|role| role != "system");
    if !has_turn
        && fields
            .left_out_names()
            .any(|name| name.starts_with("input."))
    {
        fields.reject("input", NOTHING_LEFT_MESSAGE);
    }
    stored.into_iter().collect()
}

impl ConversationBuilder {
    /// Adds the instructions, before all items.
    pub(crate) fn add_instructions(&mut self, text: String) {
        self.add_text("system", text);
    }

    /// Adds an item and returns the item to be stored.
    pub(crate) fn add_item(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        raw: RawJson<'_>,
    ) -> Option<Map<String, Value>> {
        let Some(item) = fields::as_object(raw) else {
            fields.reject(path, "must be an object");
            return None;
        };
        let kind = item.get("type").map(fields::as_text);
        match kind.as_ref().map(|kind| kind.as_deref()) {
            None | Some(Some("message")) => self.add_message(fields, path, &item),
            Some(Some("function_call")) => self.add_call(fields, path, &item),
            Some(Some(kind @ ("function_call_output" | "custom_tool_call_output"))) => {
                self.add_call_output(fields, path, &item, kind)
            }
            Some(Some("custom_tool_call")) => self.add_custom_call(fields, path, &item),
            Some(Some("reasoning")) => self.add_reasoning(fields, path, &item),
            Some(Some(kind @ "additional_tools")) => {
                self.tools.add_item(fields, path, &item)?;
                Some(stored_item(&item, kind))
            }
            Some(Some(_)) if item.get("role").is_some() => self.add_message(fields, path, &item),
            Some(Some(kind)) => {
                self.add_foreign_item(fields, path, &item, kind);
                Some(stored_item(&item, kind))
            }
            Some(None) => {
                fields.reject(format!("{path}.type"), "must be a string");
                None
            }
        }
    }

    /// Adds the item that a reference names.
    fn add_referenced(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: Option<&str>,
    ) -> Option<Map<String, Value>> {
        let raw = item.and_then(|item| serde_json::from_str(item).ok());
        if raw.is_none() {
            let error_message = "must be the id of an item in the output of a stored response: else send the item itself";
            fields.reject(format!("{path}.id"), error_message);
        }
        self.add_item(fields, path, raw?)
    }

    fn add_message(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
    ) -> Option<Map<String, Value>> {
        let role = item.get("role").and_then(fields::as_text);
        let (role, template_role) = match role.as_deref() {
            Some("user") => ("user", "user"),
            Some("assistant") => ("assistant", "assistant"),
            Some("system") => ("system", "system"),
            // Chat templates know this role as `system`.
            Some("developer") => ("developer", "system"),
            _ => {
                let error_message = "must be user, assistant, system or developer";
                fields.reject(format!("{path}.role"), error_message);
                return None;
            }
        };
        let path = format!("{path}.content");
        let (text, plain) = match item.get("content") {
            Some(raw) => match fields::as_text(raw) {
                Some(text) => (text.into_owned(), true),
                None => (content_text(fields, &path, raw, &RESPONSES)?, false),
            },
            None if role == "assistant" => (String::new(), true),
            None => {
                fields.reject(path, "is required");
                return None;
            }
        };
        let part = match role {
            "assistant" => "output_text",
            _ => "input_text",
        };
        let stored = if plain {
            with_id(message_item(role, part, &text), item)
        } else {
            stored_item(item, "message")
        };
        self.add_text(template_role, text);
        Some(stored)
    }

    /// Appends text to the assistant's message if that has no content yet, or to the system message; otherwise adds a
    /// message.
    fn add_text(&mut self, role: &str, text: String) {
        let last = self.turns.messages.last_mut();
        if let Some(last) = last.filter(|last| last.role == role) {
            let is_open =
                role == "assistant" && last.content == "" && last.rest.get("tool_calls").is_none();
            let is_system = role == "system";
            if let (true, Value::String(so_far)) = (is_open || is_system, &mut last.content) {
                let between = if so_far.is_empty() { "" } else { "\n\n" };
                so_far.push_str(between);
                so_far.push_str(&text);
                return;
            }
        }
        self.turns.messages.push(text_message(role, text));
    }

    fn add_call(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
    ) -> Option<Map<String, Value>> {
        let id = required_string(fields, path, item, "call_id");
        let name = required_string(fields, path, item, "name");
        let arguments = item.get("arguments");
        let arguments = arguments.and_then(|raw| value_of_arguments::<Value>(raw.get()));
        let (id, name, mut arguments) = (
            id?,
            offered_name(item, &name?),
            arguments.unwrap_or(Value::Null),
        );
        parse_arguments(&mut arguments);
        self.turns.add_call(id, name, &arguments);
        Some(stored_item(item, "function_call"))
    }

    /// Adds the call of a tool whose input is a text: the model knows the tool as a function.
    fn add_custom_call(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
    ) -> Option<Map<String, Value>> {
        let id = required_string(fields, path, item, "call_id");
        let name = required_string(fields, path, item, "name");
        let input = required_string(fields, path, item, "input");
        let (id, name, input) = (id?, offered_name(item, &name?), input?);
        self.turns.add_call(id, name, &input_arguments(&input));
        Some(stored_item(item, "custom_tool_call"))
    }

    fn add_call_output(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
        kind: &str,
    ) -> Option<Map<String, Value>> {
        let id = required_string(fields, path, item, "call_id")?;
        if !self.use_pending(&id) && !self.turns.has_call(&id) {
            let error_message =
                "must be the call_id of an earlier function_call or custom_tool_call";
            fields.reject(format!("{path}.call_id"), error_message);
            return None;
        }
        let path = format!("{path}.output");
        let text = match item.get("output") {
            Some(raw) => content_text(fields, &path, raw, &RESPONSES_RESULTS)?,
            None => String::new(),
        };
        self.turns.add_result(id, text);
        Some(stored_item(item, kind))
    }

    /// Adds the text of a reasoning item. Encrypted reasoning is stored, and not passed to the chat template.
    fn add_reasoning(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
    ) -> Option<Map<String, Value>> {
        let mut reasoning = None;
        for name in ["summary", "content"] {
            if let Some(raw) = item.get(name) {
                let text = parts_text(fields, &format!("{path}.{name}"), raw, &RESPONSES)?;
                reasoning = Some(text).filter(|text| !text.is_empty()).or(reasoning);
            }
        }
        if let Some(text) = reasoning {
            let mut message = text_message("assistant", "");
            let name = "reasoning_content".to_owned();
            message.rest.insert(name, Value::String(text));
            self.turns.messages.push(message);
        }
        Some(stored_item(item, "reasoning"))
    }
}

/// The id in a reference to an item; `None`: the item is no reference. The type of a reference may be left out or null.
fn referenced_id(raw: RawJson<'_>) -> Option<String> {
    let item = fields::as_object(raw)?;
    let text = |name: &str| item.get(name).and_then(fields::as_text);
    let is_reference = match item.get("type") {
        Some(kind) => fields::as_text(kind).as_deref() == Some("item_reference"),
        None => item.get("id").is_some() && item.get("role").is_none(),
    };
    is_reference.then(|| text("id").unwrap_or_default().into_owned())
}

/// Name of the function that the model knows for the tool of an earlier call.
fn offered_name(item: &JsonObject<'_>, name: &str) -> String {
    let namespace = item.get("namespace").and_then(fields::as_text);
    function_name(namespace.as_deref(), name)
}

/// A message item with one content part.
fn message_item(role: &str, part: &str, text: &str) -> Map<String, Value> {
    let content = json!([{"type": part, "text": text}]);
    let fields = [
        ("type", json!("message")),
        ("status", json!("completed")),
        ("role", json!(role)),
        ("content", content),
    ];
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn with_id(mut stored: Map<String, Value>, item: &JsonObject<'_>) -> Map<String, Value> {
    if let Some(id) = item.get("id").and_then(fields::as_text) {
        stored.insert("id".to_owned(), Value::String(id.into_owned()));
    }
    stored
}

/// The item to be stored: all members, and the type.
fn stored_item(item: &JsonObject<'_>, kind: &str) -> Map<String, Value> {
    let value = |(name, raw)| Some((str::to_owned(name), fields::parse_value(raw)?));
    let mut stored: Map<String, Value> = item.entries().filter_map(value).collect();
    stored.insert("type".to_owned(), json!(kind));
    stored
}
