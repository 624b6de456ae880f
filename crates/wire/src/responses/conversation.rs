//! Input items, converted to the messages that chat templates expect, and to the items that are stored.
//!
//! Output items of a response are valid input items, so a continued conversation is the list of all items so far, in
//! order. Tool calls and reasoning become members of the assistant's message.
//!
//! Items of tools that this server does not offer: an agent sends them back with the conversation in which another API gave
//! them.
//!
//! A call counts once its result is known: in an item of its own with the call's id (`shell_call`, `shell_call_output`), or
//! within the item (`mcp_call`). The model then reads both, like a function's. An item without a call, a result or a text is
//! left out, and named in the response's header.

use super::ID_PREFIX;
use super::tools::ToolParser;
use crate::fields::{self, Fields, JsonObject, OrReject, RawJson};
use crate::request_parser::HistoryLookup;
use crate::shared::content_parts::{
    ContentPart, RESPONSES, RESPONSES_ANSWERS, RESPONSES_RESULTS, content, is_part, parse_part,
    parts_text, required_string,
};
use crate::shared::images::ImageMembers;
use crate::shared::messages::{Conversation, text_message};
use crate::shared::timings::result_text;
use crate::shared::tool_calls::{parse_arguments, value_of_arguments};
use generate::request::{MESSAGES_MAX, PARTS_MAX};
use generate::tools::{function_name, input_arguments};
use serde_json::{Map, Value, json};
use text::Message;

/// Error message for a list of items that were all left out.
const NOTHING_LEFT_MESSAGE: &str = "has no item that this server can use: message, function_call, \
    function_call_output, custom_tool_call, custom_tool_call_output, additional_tools, reasoning, or a call with its output";

/// Error message for a part that stands among the items.
const PART_MESSAGE: &str = "is a part, not an item: it belongs in the content of a message";
/// Images of a message, and of the output of a tool.
const IMAGES: ImageMembers =
    ImageMembers(&[], "images are parts of content and output (input_image)");

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
    let raw = fields
        .described("input", schema)
        .or_reject(fields, "input", "is required")?;
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
        let item = fields::as_object(raw).or_reject(fields, path, "must be an object")?;
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
            Some(None) => fields.no_value(format_args!("{path}.type"), "must be a string"),
        }
    }

    /// Adds the item that a reference names.
    fn add_referenced(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: Option<&str>,
    ) -> Option<Map<String, Value>> {
        let raw = item.and_then(|item| serde_json::from_str(item).ok()).or_reject(fields, format_args!("{path}.id"), "must be the id of an item in the output of a stored response: else send the item itself");
        self.add_item(fields, path, raw?)
    }

    fn add_message(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
    ) -> Option<Map<String, Value>> {
        let role = item.text("role");
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
        IMAGES.reject_others(fields, path, item, role == "assistant");
        let path = format!("{path}.content");
        let types = match role {
            "assistant" => &RESPONSES_ANSWERS,
            _ => &RESPONSES,
        };
        let (said, plain) = match item.get("content") {
            Some(raw) => match fields::as_text(raw) {
                Some(text) => (Value::String(text.into_owned()), true),
                None => (content(fields, &path, raw, types)?, false),
            },
            None if role == "assistant" => (Value::String(String::new()), true),
            None => {
                fields.reject(path, "is required");
                return None;
            }
        };
        let part = match role {
            "assistant" => "output_text",
            _ => "input_text",
        };
        let stored = match said.as_str().filter(|_| plain) {
            Some(text) => with_id(message_item(role, part, text), item),
            None => stored_item(item, "message"),
        };
        self.add_content(template_role, said);
        Some(stored)
    }

    fn add_text(&mut self, role: &str, text: String) {
        self.add_content(role, Value::String(text));
    }

    /// Appends text to the assistant's message if that has no content yet, or to the system message; otherwise adds a
    /// message.
    fn add_content(&mut self, role: &str, content: Value) {
        let last = self.turns.messages.last_mut();
        if let Some(last) = last.filter(|last| last.role == role) {
            let is_open =
                role == "assistant" && last.content == "" && last.rest.get("tool_calls").is_none();
            let is_system = role == "system";
            if let (true, Value::String(so_far), Value::String(text)) =
                (is_open || is_system, &mut last.content, &content)
            {
                let between = if so_far.is_empty() { "" } else { "\n\n" };
                so_far.push_str(between);
                so_far.push_str(text);
                return;
            }
        }
        self.turns.messages.push(Message {
            content,
            ..text_message(role, "")
        });
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
        IMAGES.reject_others(fields, path, item, false);
        let path = format!("{path}.output");
        let result = match item.get("output") {
            Some(raw) => content(fields, &path, raw, &RESPONSES_RESULTS)?,
            None => Value::String(String::new()),
        };
        self.turns.add_result(id, result);
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
                let text = parts_text(fields, &format!("{path}.{name}"), raw, &RESPONSES_ANSWERS)?;
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
    let text = |name: &str| item.text(name);
    let is_reference = match item.get("type") {
        Some(kind) => fields::as_text(kind).as_deref() == Some("item_reference"),
        None => item.get("id").is_some() && item.get("role").is_none(),
    };
    is_reference.then(|| text("id").unwrap_or_default().into_owned())
}

/// Name of the function that the model knows for the tool of an earlier call.
fn offered_name(item: &JsonObject<'_>, name: &str) -> String {
    let namespace = item.text("namespace");
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
    if let Some(id) = item.text("id") {
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

/// Members of a call that are its arguments, the first that is given.
const ARGUMENTS: [&str; 5] = ["arguments", "action", "operation", "actions", "input"];
/// Members of a call that is its own result, the first that is given.
const RESULTS: [&str; 4] = ["output", "outputs", "results", "error"];
/// Members of a call that are neither.
const OF_THE_ITEM: [&str; 6] = ["type", "id", "call_id", "status", "name", "server_label"];

/// A call without a result so far.
#[derive(Debug)]
pub(super) struct PendingCall {
    id: String,
    name: String,
    arguments: Value,
    /// Path and kind of the item.
    place: (String, String),
}

impl ConversationBuilder {
    /// Adds an item of a kind without a parser, as far as this server can use the item.
    fn add_foreign_item(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
        kind: &str,
    ) {
        let text = |name: &str| item.text(name);
        let given = |name| Some((name, item.get(name)?));
        let result = RESULTS.into_iter().find_map(given);
        let is_result = kind.ends_with("_output");
        let id = text("call_id").or_else(|| text("id"));
        let place = (path.to_owned(), kind.to_owned());
        match (id, result) {
            (Some(id), _) if is_result => {
                if self.use_pending(&id) || self.turns.has_call(&id) {
                    let given = result.or_else(|| given("status"));
                    self.add_foreign_result(fields, path, id.into_owned(), given);
                } else if result.is_some_and(|(_, result)| has_image(result)) {
                    let why = "must be the call_id of an earlier call: this result has an image";
                    fields.reject(format_args!("{path}.call_id"), why);
                } else {
                    leave_out(fields, &place);
                }
            }
            (Some(id), result) if kind.ends_with("_call") => {
                self.pending.push(PendingCall {
                    id: id.clone().into_owned(),
                    name: text("name").map_or_else(|| tool_name(kind), Into::into),
                    arguments: call_arguments(item),
                    place,
                });
                if result.is_some() {
                    self.use_pending(&id);
                    self.add_foreign_result(fields, path, id.into_owned(), result);
                }
            }
            _ if is_part(item, kind, &RESPONSES) => fields.reject(path, PART_MESSAGE),
            _ => leave_out(fields, &place),
        }
    }

    /// Adds the result in the member of this name: its images and texts, or its text alone.
    fn add_foreign_result(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        id: String,
        result: Option<(&str, RawJson<'_>)>,
    ) {
        let content = match result {
            Some((name, result)) if has_image(result) => {
                let path = format!("{path}.{name}");
                match fields::as_object(result) {
                    Some(_) => parse_part(fields, &path, result, &RESPONSES_RESULTS)
                        .map(ContentPart::into_content),
                    None => content(fields, &path, result, &RESPONSES_RESULTS),
                }
            }
            result => Some(
                result
                    .map(|(_, raw)| result_text(raw))
                    .unwrap_or_default()
                    .into(),
            ),
        };
        if let Some(content) = content {
            self.turns.add_result(id, content);
        }
    }

    /// Adds the call of this id that has waited for its result; whether there is one.
    fn use_pending(&mut self, id: &str) -> bool {
        let at = self.pending.iter().rposition(|call| call.id == id);
        let call = at.map(|at| self.pending.remove(at));
        let is_found = call.is_some();
        if let Some(call) = call {
            self.turns.add_call(call.id, call.name, &call.arguments);
        }
        is_found
    }

    /// Leaves out the calls without a result.
    pub(super) fn drop_pending(&mut self, fields: &mut Fields<'_>) {
        for call in self.pending.drain(..) {
            leave_out(fields, &call.place);
        }
    }
}

/// Whether a result is a screenshot, or a list of parts with an image.
fn has_image(result: RawJson<'_>) -> bool {
    let is_image = |part: RawJson<'_>| {
        let kind = fields::as_object(part).and_then(|part| part.text("type"));
        matches!(kind.as_deref(), Some("computer_screenshot" | "input_image"))
    };
    let parts = fields::as_list(result, PARTS_MAX).unwrap_or_default();
    is_image(result) || parts.into_iter().any(is_image)
}

fn leave_out(fields: &mut Fields<'_>, (path, kind): &(String, String)) {
    fields.leave_out(path, format!("input.{kind}"));
}

/// Name of the tool of an item without a name: `shell` for a `shell_call`.
fn tool_name(kind: &str) -> String {
    kind.strip_suffix("_call").unwrap_or(kind).to_owned()
}

/// The arguments of a call: those that are given as such, or the members that only this kind of item has.
fn call_arguments(item: &JsonObject<'_>) -> Value {
    let given = ARGUMENTS.into_iter().find_map(|name| item.get(name));
    if let Some(raw) = given {
        let mut arguments = value_of_arguments::<Value>(raw.get()).unwrap_or_default();
        parse_arguments(&mut arguments);
        return arguments;
    }
    let is_argument = |name: &str| !OF_THE_ITEM.contains(&name) && !RESULTS.contains(&name);
    let members = item.entries().filter(|(name, _)| is_argument(name));
    let value = |(name, raw)| Some((str::to_owned(name), fields::parse_value(raw)?));
    Value::Object(members.filter_map(value).collect::<Map<_, _>>())
}

/// Bytes of stored items that are looked through for one request.
const REFERENCE_BYTES_MAX: usize = 64 << 20;

/// Finds output items of stored responses by their ids, for one request.
pub(super) struct ItemReferences<'a> {
    history: &'a HistoryLookup<'a>,
    bytes_left: usize,
}

impl<'a> ItemReferences<'a> {
    /// Items of these responses.
    pub(super) fn new(history: &'a HistoryLookup<'a>) -> Self {
        Self {
            history,
            bytes_left: REFERENCE_BYTES_MAX,
        }
    }

    /// The item of this id as JSON. `None`: it is not stored, or too much was looked through.
    pub(super) fn find(&mut self, id: &str) -> Option<String> {
        // The id of an output item has that of its response: `msg_{stream}`, `fc_{stream}_1`.
        let stream = id.split('_').nth(1)?;
        let response = (self.history)(&format!("{ID_PREFIX}{stream}")).ok()?;
        let mut found = None;
        for item in response.items() {
            self.bytes_left = self.bytes_left.checked_sub(item.len())?;
            if item.contains(id) && has_id(item, id) {
                found = Some(item.to_owned());
            }
        }
        found
    }
}

fn has_id(item: &str, id: &str) -> bool {
    let item: Option<JsonObject<'_>> = serde_json::from_str(item).ok();
    let given = item.as_ref().and_then(|item| item.get("id"));
    given.and_then(fields::as_text).as_deref() == Some(id)
}

#[cfg(test)]
mod tests;
