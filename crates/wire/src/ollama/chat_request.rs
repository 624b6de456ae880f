//! Parser of `POST /api/chat`.

use super::keep_alive::keep_alive;
use super::request::{self, NOT_SUPPORTED};
use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::{field_table, tool_definitions};
use generate::error::ApiError;
use generate::request::{GenerateRequest, MESSAGES_MAX, PARTS_MAX, Prompt};
use generate::truncation::Truncation;
use serde_json::{Map, Value, json};
use text::Message;

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let messages = parse_messages(&mut fields);
    let kwargs = request::template_kwargs(&mut fields);
    let mut params = request::generation_params(&mut fields, context);
    params.truncation = request::truncation(&mut fields, Truncation::Turns);
    let mut stream_options = request::stream_options(&mut fields);
    let tools = params.take_tools(tool_definitions::parse_tools(&mut fields));
    keep_alive(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&field_table::OLLAMA_CHAT)?;
    Ok(GenerateRequest {
        prompts: vec![Prompt::Conversation {
            field: "messages",
            messages,
            tools,
            continues: false,
            kwargs,
        }],
        n: 1,
        params,
        stream_options,
    }
    .into())
}

fn parse_messages(fields: &mut Fields<'_>) -> Vec<Message> {
    let items = fields.array("messages", MESSAGES_MAX).unwrap_or_default();
    items
        .into_iter()
        .enumerate()
        .filter_map(|(i, raw)| parse_message(fields, &format!("messages[{i}]"), raw))
        .collect()
}

/// Parses one message; errors are recorded in `fields`.
fn parse_message(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<Message> {
    let object = Some(raw).filter(|raw| fields::json_type(*raw) == JsonType::Object);
    let Some(object) = object.and_then(fields::parse_value::<JsonObject<'_>>) else {
        fields.reject(path, "must be an object with a role and content");
        return None;
    };
    let role = object.get("role").and_then(fields::as_text);
    let role = role.filter(|role| {
        matches!(
            &**role,
            "system" | "developer" | "user" | "assistant" | "tool"
        )
    });
    if role.is_none() {
        let error_message = "must be one of system, developer, user, assistant, tool";
        fields.reject(format!("{path}.role"), error_message);
    }
    let content = string_member(fields, &object, path, "content");
    let rest = other_members(fields, path, &object);
    let images = object.get("images");
    if images.is_some_and(|images| fields::as_list(images, 0).is_none()) {
        fields.reject(format!("{path}.images"), NOT_SUPPORTED);
    }
    Some(Message {
        role: role?.into_owned(),
        content: Value::String(content.unwrap_or_default()),
        rest,
    })
}

/// Further members of a message that chat templates read, under the names in those templates.
fn other_members(
    fields: &mut Fields<'_>,
    path: &str,
    object: &JsonObject<'_>,
) -> Map<String, Value> {
    let mut rest = Map::new();
    for (name, known_as) in [
        ("thinking", "reasoning_content"),
        ("tool_name", "name"),
        ("tool_call_id", "tool_call_id"),
    ] {
        if let Some(text) = string_member(fields, object, path, name) {
            rest.insert(known_as.to_owned(), Value::String(text));
        }
    }
    let Some(raw) = object.get("tool_calls") else {
        return rest;
    };
    let calls = fields::as_list(raw, PARTS_MAX);
    let calls: Option<Vec<Value>> =
        calls.and_then(|calls| calls.into_iter().map(earlier_call).collect());
    match calls {
        Some(calls) if calls.is_empty() => {}
        Some(calls) => {
            rest.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        None => {
            let error_message = "must be a list of {\"function\":{\"name\":..,\"arguments\":{..}}}";
            fields.reject(format!("{path}.tool_calls"), error_message);
        }
    }
    rest
}

/// An earlier tool call of the conversation, in OpenAI's format, which chat templates expect.
fn earlier_call(raw: RawJson<'_>) -> Option<Value> {
    let call: Map<String, Value> = fields::parse_value(raw)?;
    let function = call.get("function")?.as_object()?;
    let (name, arguments) = (function.get("name")?.as_str()?, function.get("arguments"));
    let arguments = arguments.map_or_else(|| json!({}), Clone::clone);
    let mut converted = json!({
        "type": "function", "function": {"name": name, "arguments": arguments},
    });
    if let Some(id) = call.get("id").and_then(Value::as_str) {
        converted["id"] = json!(id);
    }
    Some(converted)
}

fn string_member(
    fields: &mut Fields<'_>,
    object: &JsonObject<'_>,
    path: &str,
    name: &str,
) -> Option<String> {
    let raw = object.get(name)?;
    let text = fields::as_text(raw);
    if text.is_none() {
        fields.reject(format!("{path}.{name}"), "must be a string");
    }
    text.map(std::borrow::Cow::into_owned)
}
