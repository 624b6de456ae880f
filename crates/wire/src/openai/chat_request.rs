//! Parser of `POST /v1/chat/completions`.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use crate::openai::{earlier_calls, generation_fields, stored_completion};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::{field_table, tool_definitions};
use generate::error::ApiError;
use generate::request::{GenerateRequest, MESSAGES_MAX, PARTS_MAX, Prompt, TOP_LOGPROBS_MAX};
use serde_json::{Map, Value};
use text::Message;

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let messages = parse_messages(&mut fields);
    let tools = tool_definitions::parse_tools(&mut fields);
    let kwargs = template_kwargs(&mut fields);
    let mut params = generation_fields::generation_params(&mut fields, context);
    let tools = params.take_tools(tools);
    params.reasoning_budget = parse_reasoning_budget(&mut fields);
    params.truncation = generation_fields::prompt_truncation(&mut fields);
    let mut stream_options = generation_fields::stream_options(&mut fields);
    let n = generation_fields::choice_count(&mut fields, 1);
    parse_logprobs(&mut fields, &mut params.sampling);
    stream_options.return_token_ids = fields.boolean("return_token_ids").unwrap_or(false);
    stream_options.timings = fields.boolean("timings_per_token").unwrap_or(false);
    let stored_request = stored_completion::parse_store(&mut fields, &params);
    stream_options.ignored_fields = fields.finish_request(&field_table::CHAT)?;
    let request = GenerateRequest {
        prompts: vec![Prompt::Conversation {
            field: "messages",
            messages,
            tools,
            continues: false,
            kwargs,
        }],
        n,
        params,
        stream_options,
    };
    Ok(ParsedBody {
        stored_request,
        ..request.into()
    })
}

/// Parses `logprobs` and `top_logprobs`.
pub fn parse_logprobs(fields: &mut Fields<'_>, sampling: &mut engine::SamplingParams) {
    sampling.logprobs = fields.boolean("logprobs").unwrap_or(false);
    let top = fields
        .integer("top_logprobs", 0..=TOP_LOGPROBS_MAX as i128)
        .unwrap_or(0);
    sampling.top_logprobs = u32::try_from(top).unwrap_or(0);
    if top > 0 && !sampling.logprobs {
        fields.reject("top_logprobs", "needs \"logprobs\": true");
    }
}

/// Parses the reasoning budget: `reasoning.max_tokens`, or Anthropic's `thinking.budget_tokens`.
pub fn parse_reasoning_budget(fields: &mut Fields<'_>) -> Option<u64> {
    let mut found = None;
    for (object, name) in [("reasoning", "max_tokens"), ("thinking", "budget_tokens")] {
        let range = 0..=i128::from(u32::MAX);
        let max = fields.within(object, |fields| fields.integer(name, range));
        found = found.or(max.and_then(|max| u64::try_from(max).ok()));
    }
    found
}

/// Parses the variables of the chat template: `chat_template_kwargs`, and those that follow from `reasoning_effort`
/// and `reasoning`.
pub fn template_kwargs(fields: &mut Fields<'_>) -> Map<String, Value> {
    let mut kwargs: Map<String, Value> = Map::new();
    let named = fields.string("reasoning_effort");
    let named = named.map(std::borrow::Cow::into_owned);
    let reasoning = |fields: &mut Fields<'_>| {
        let effort = fields.string("effort").map(std::borrow::Cow::into_owned);
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
                    "is nested too deeply",
                ),
            }
        }
    }
    kwargs
}

/// Parses `messages`; errors are recorded in `fields`.
pub fn parse_messages(fields: &mut Fields<'_>) -> Vec<Message> {
    let Some(items) = fields.array("messages", MESSAGES_MAX) else {
        if fields.raw("messages").is_none() {
            fields.reject("messages", "is required");
        }
        return Vec::new();
    };
    if items.is_empty() {
        fields.reject("messages", "must hold at least one message");
    }
    items
        .into_iter()
        .enumerate()
        .filter_map(|(i, raw)| parse_message(fields, &format!("messages[{i}]"), raw))
        .collect()
}

/// Parses one message; errors are recorded in `fields`.
fn parse_message(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<Message> {
    let object: Option<JsonObject<'_>> = if fields::json_type(raw) == JsonType::Object {
        fields::parse_value(raw)
    } else {
        None
    };
    let Some(object) = object else {
        fields.reject(path, "must be an object with a role and content");
        return None;
    };
    let role = object.get("role").and_then(fields::as_text);
    let role = role.filter(|role| {
        matches!(
            &**role,
            "system" | "developer" | "user" | "assistant" | "tool" | "function"
        )
    });
    if role.is_none() {
        fields.reject(
            format!("{path}.role"),
            "must be one of system, developer, user, assistant, tool",
        );
    }
    let rest = other_members(fields, path, &object);
    let may_be_silent = role.as_deref() == Some("assistant");
    let (content, refusal) = (object.get("content"), object.get("refusal"));
    let (name, content) = match (content, refusal.filter(|_| may_be_silent)) {
        (None, Some(refusal)) => ("refusal", Some(refusal)),
        (content, _) => ("content", content),
    };
    let content = parse_content(fields, &format!("{path}.{name}"), content, may_be_silent)?;
    let role = match &*role? {
        // The role of results before `tool`.
        "function" => "tool".to_owned(),
        role => role.to_owned(),
    };
    Some(Message {
        role,
        content,
        rest,
    })
}

/// Further members of a message that chat templates read.
fn other_members(
    fields: &mut Fields<'_>,
    path: &str,
    object: &JsonObject<'_>,
) -> Map<String, Value> {
    let mut rest = Map::new();
    for (name, known_as) in [
        ("name", "name"),
        ("tool_call_id", "tool_call_id"),
        ("reasoning", "reasoning_content"),
        ("reasoning_content", "reasoning_content"),
    ] {
        let Some(raw) = object.get(name) else {
            continue;
        };
        match fields::as_text(raw) {
            Some(text) => {
                rest.insert(known_as.to_owned(), Value::String(text.into_owned()));
            }
            None => fields.reject(format!("{path}.{name}"), "must be a string"),
        }
    }
    let calls = match object.get("tool_calls") {
        Some(raw) => earlier_calls::tool_calls(fields, path, raw),
        None => earlier_calls::former_call(fields, path, object),
    };
    if let Some(calls) = calls {
        rest.insert("tool_calls".to_owned(), calls);
    }
    rest
}

/// Parses the content of a message: a string, or text parts, which are joined by line ends.
fn parse_content(
    fields: &mut Fields<'_>,
    path: &str,
    raw: Option<RawJson<'_>>,
    may_be_silent: bool,
) -> Option<Value> {
    let Some(raw) = raw else {
        if may_be_silent {
            // Chat templates that concatenate contents need a string.
            return Some(Value::String(String::new()));
        }
        fields.reject(path, "is required");
        return None;
    };
    if let Some(text) = fields::as_text(raw) {
        return Some(Value::String(text.into_owned()));
    }
    if fields::json_type(raw) == JsonType::String {
        fields.reject(path, "has an invalid Unicode escape");
        return None;
    }
    let Some(parts) = fields::as_list(raw, PARTS_MAX) else {
        fields.reject(
            path,
            format!("must be a string or a list of at most {PARTS_MAX} parts"),
        );
        return None;
    };
    let texts: Vec<Option<String>> = parts
        .into_iter()
        .enumerate()
        .map(|(i, part)| part_text(fields, &format!("{path}[{i}]"), part))
        .collect();
    let texts: Option<Vec<String>> = texts.into_iter().collect();
    texts.map(|texts| Value::String(texts.join("\n")))
}

fn part_text(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<String> {
    if let Some(text) = fields::as_text(raw) {
        return Some(text.into_owned());
    }
    let object: Option<JsonObject<'_>> = if fields::json_type(raw) == JsonType::Object {
        fields::parse_value(raw)
    } else {
        None
    };
    let kind = object
        .as_ref()
        .and_then(|part| part.get("type"))
        .and_then(fields::as_text);
    match kind.as_deref() {
        Some(kind @ ("text" | "input_text" | "output_text" | "refusal")) => {
            let name = if kind == "refusal" { kind } else { "text" };
            let text = object
                .as_ref()
                .and_then(|part| part.get(name))
                .and_then(fields::as_text);
            if text.is_none() {
                fields.reject(format!("{path}.{name}"), "must be a string");
            }
            text.map(std::borrow::Cow::into_owned)
        }
        Some("image_url" | "input_image" | "input_audio" | "video_url" | "file") => {
            fields.reject(
                path,
                "only text parts: images, sound and files are not supported yet by this server",
            );
            None
        }
        _ => {
            fields.reject(format!("{path}.type"), "must be \"text\" or \"refusal\"");
            None
        }
    }
}
