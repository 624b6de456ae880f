//! Parser of `POST /api/chat`.

use super::request;
use crate::fields::{self, Fields, JsonObject, RawJson};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::content_parts::{parse_images, required_string};
use crate::shared::keep_alive::keep_alive;
use crate::shared::messages;
use crate::shared::tool_calls::value_of_arguments;
use crate::{field_table, tool_definitions};
use generate::error::ApiError;
use generate::prompt_limit::Truncation;
use generate::request::{MESSAGES_MAX, PARTS_MAX};
use serde_json::{Map, Value, json};
use text::Message;

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let conversation = parse_messages(&mut fields);
    let kwargs = request::template_kwargs(&mut fields);
    let mut params = request::generation_params(&mut fields, context);
    params.truncation = request::truncation(&mut fields, Truncation::Turns);
    let mut stream_options = request::stream_options(&mut fields);
    let tools = params.take_tools(tool_definitions::parse_tools(&mut fields));
    keep_alive(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&field_table::OLLAMA_CHAT)?;
    let prompt = messages::prompt("messages", conversation, tools, kwargs);
    Ok(ParsedBody::of_prompts([prompt], params, stream_options))
}

fn parse_messages(fields: &mut Fields<'_>) -> Vec<Message> {
    fields.record(
        "messages",
        || json!({"items": messages::message_schema(None)}),
    );
    let items = fields.array("messages", MESSAGES_MAX).unwrap_or_default();
    items
        .into_iter()
        .enumerate()
        .filter_map(|(i, raw)| parse_message(fields, &format!("messages[{i}]"), raw))
        .collect()
}

/// Parses one message; errors are recorded in `fields`.
fn parse_message(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<Message> {
    let (object, role) = messages::message_object(fields, path, raw, None)?;
    let content = object.get("content");
    let content = content.and_then(|_| required_string(fields, path, &object, "content"));
    let rest = other_members(fields, path, &object);
    if let Some(images) = object.get("images") {
        parse_images(fields, &format!("{path}.images"), images);
    }
    Some(Message {
        rest,
        ..messages::text_message(&role?, content.unwrap_or_default())
    })
}

/// Further members of a message that chat templates read, under the names in those templates.
fn other_members(
    fields: &mut Fields<'_>,
    path: &str,
    object: &JsonObject<'_>,
) -> Map<String, Value> {
    let names = [
        ("thinking", "reasoning_content"),
        ("tool_name", "name"),
        ("tool_call_id", "tool_call_id"),
    ];
    let mut rest = messages::string_members(fields, path, object, &names);
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
    let call: Map<String, Value> = value_of_arguments(raw.get())?;
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
