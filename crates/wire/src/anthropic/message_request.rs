//! Parser of `POST /v1/messages`.

use super::conversation;
use crate::fields::bounds::short_strings;
use crate::fields::{self, Fields, OrReject, RawJson};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::generation_fields;
use crate::tool_definitions::{expect_type, parse_tool_list};
use crate::{field_table, response_format};
use generate::error::ApiError;
use generate::generation_options::TokenLimit;
use generate::images::ImagePart;
use generate::request::ResponseFormat;
use generate::request::{Prompt, STOP_BYTES_MAX, STOPS_MAX};
use generate::tools::{ToolChoice, Tools};
use serde_json::{Map, Value, json};

/// Error message for unsupported features.
const NOT_SUPPORTED: &str = "is not supported yet by this server";
/// Error code that makes Anthropic's clients resend the conversation without `thread`.
pub const THREAD_UNSUPPORTED: &str = "thread_unsupported_request";
/// Limit of edits in `context_management`.
const EDITS_MAX: usize = 16;
/// Lower limit of `thinking.budget_tokens`.
const THINKING_TOKENS_MIN: i128 = 1024;

/// Parses a request. Besides Anthropic's fields, this server's generation parameters (`seed`, `min_p`, ...) are
/// accepted.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    expect_no_thread(&fields)?;
    let max_tokens = context
        .defaults
        .options
        .max_tokens
        .and_then(TokenLimit::tokens);
    let read = parse_prompt_fields(&mut fields, max_tokens);
    let mut params = generation_fields::generation_params(&mut fields, context);
    params.response_format = parse_output_format(&mut fields, params.response_format);
    params.take_tools(read.tools);
    params.reasoning_budget = read.reasoning_budget;
    if let Some(sequences) = parse_stop_sequences(&mut fields) {
        if fields.raw("stop").is_none() {
            // Stop strings of the model.
            params.stops.clear();
        }
        params.stops.extend(sequences);
    }
    if params.stops.len() > STOPS_MAX {
        fields.reject("stop_sequences", too_many_stops());
    }
    if fields.raw("max_tokens").is_none() && max_tokens.is_none() {
        fields.reject("max_tokens", "is required");
    }
    let mut stream_options = generation_fields::stream_options(&mut fields);
    // Every message reports its usage.
    stream_options.include_usage = true;
    fields.integer("n", 1..=1);
    generation_fields::reject_logprobs(&mut fields);
    let images = fields.take_images();
    stream_options.ignored_fields = fields.finish_request(&field_table::MESSAGES)?;
    Ok(ParsedBody::of_prompts(read.prompt, params, stream_options).with_images(images))
}

/// Parses the prompt of a request to `/v1/messages/count_tokens`, with its images.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_prompt(mut fields: Fields<'_>) -> Result<(Option<Prompt>, Vec<ImagePart>), ApiError> {
    expect_no_thread(&fields)?;
    let read = parse_prompt_fields(&mut fields, None);
    let images = fields.take_images();
    fields.finish_request(&field_table::MESSAGES)?;
    Ok((read.prompt, images))
}

/// The prompt, and the parameters that are parsed together with the prompt.
struct ParsedPrompt {
    /// `None` on errors.
    prompt: Option<Prompt>,
    tools: Tools,
    reasoning_budget: Option<u64>,
}

/// Parses `system`, `messages`, `tools`, and the other fields that change the prompt.
fn parse_prompt_fields(fields: &mut Fields<'_>, max_tokens_default: Option<usize>) -> ParsedPrompt {
    let conversation = conversation::parse_conversation(fields);
    let tools = parse_tools(fields);
    let mut kwargs = Map::new();
    let reasoning_budget = parse_thinking(fields, max_tokens_default, &mut kwargs);
    parse_output_config(fields, &mut kwargs);
    check_metadata(fields);
    check_context_management(fields);
    let prompt = conversation.map(|conversation| Prompt::Conversation {
        field: "messages",
        messages: conversation.turns.messages,
        tools: tools.definitions.clone(),
        continues: conversation.continues,
        kwargs,
    });
    ParsedPrompt {
        prompt,
        tools,
        reasoning_budget,
    }
}

/// Parses `thinking` into variables of the chat template and returns the reasoning budget. Without the field, the
/// model's default holds.
fn parse_thinking(
    fields: &mut Fields<'_>,
    max_tokens_default: Option<usize>,
    kwargs: &mut Map<String, Value>,
) -> Option<u64> {
    fields.record("thinking", || {
        json!({"required": ["type"], "properties": {
            "type": {"enum": ["enabled", "disabled", "adaptive", "between_tools"]},
            "budget_tokens": {"type": ["integer", "null"]},
        }})
    });
    fields.record(
        "max_tokens",
        || json!({"description": "thinking.budget_tokens must be less"}),
    );
    let object = fields.object("thinking")?;
    let kind = object.text("type");
    let enabled = match kind.as_deref() {
        Some("enabled" | "adaptive" | "between_tools") => true,
        Some("disabled") => false,
        _ => {
            let error_message = "must be enabled, disabled, adaptive or between_tools";
            fields.reject("thinking.type", error_message);
            return None;
        }
    };
    kwargs.insert("enable_thinking".to_owned(), Value::Bool(enabled));
    if kind.as_deref() != Some("enabled") {
        return None;
    }
    let budget = object.get("budget_tokens").and_then(fields::whole_number);
    let high = match fields.raw("max_tokens") {
        Some(raw) => fields::whole_number(raw),
        None => max_tokens_default.map(|max| max as i128),
    };
    let high = high.unwrap_or(i128::from(u32::MAX));
    match budget.filter(|budget| (THINKING_TOKENS_MIN..high).contains(budget)) {
        Some(budget) => {
            let budget = u64::try_from(budget).unwrap_or(u64::MAX);
            kwargs.insert("thinking_budget".to_owned(), Value::from(budget));
            Some(budget)
        }
        None => fields.no_value(
            "thinking.budget_tokens",
            format_args!(
                "must be an integer of at least {THINKING_TOKENS_MIN}, less than max_tokens"
            ),
        ),
    }
}

/// Parses the effort, for chat templates with a variable for effort.
fn parse_output_config(fields: &mut Fields<'_>, kwargs: &mut Map<String, Value>) {
    fields.record("output_config", || {
        json!({"properties": {
            "effort": {"type": ["string", "null"]}, "format": {"type": ["object", "null"]},
        }})
    });
    let Some(object) = fields.object("output_config") else {
        return;
    };
    if let Some(raw) = object.get("effort") {
        match fields::as_text(raw) {
            Some(effort) => {
                let effort = Value::String(effort.into_owned());
                kwargs.insert("reasoning_effort".to_owned(), effort);
            }
            None => fields.reject("output_config.effort", "must be a string"),
        }
    }
}

/// Rejects `thread`, a conversation stored on the server, before other fields are validated: a client that gets this
/// error resends the whole conversation, and gets the other errors then.
fn expect_no_thread(fields: &Fields<'_>) -> Result<(), ApiError> {
    match fields.raw("thread") {
        None => Ok(()),
        Some(_) => {
            let error_message =
                "thread: this server stores no conversations: send all messages without thread";
            Err(ApiError::field("thread", THREAD_UNSUPPORTED, error_message))
        }
    }
}

/// Validates `context_management.edits`. Edits that clear tool results or reasoning have no effect; compaction is
/// rejected, because compaction adds a block to the answer.
fn check_context_management(fields: &mut Fields<'_>) {
    fields.record("context_management", || {
        json!({"properties": {"edits": {"type": ["array", "null"], "items": {"type": "object"}}}})
    });
    let Some(object) = fields.object("context_management") else {
        return;
    };
    let Some(edits) = object.get("edits") else {
        return;
    };
    let path = "context_management.edits";
    for (i, edit) in fields::as_list(edits, EDITS_MAX)
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let kind = fields::as_object(edit).and_then(|edit| edit.get("type"));
        let kind = kind.and_then(fields::as_text);
        if !kind.is_some_and(|kind| kind.starts_with("clear_")) {
            let error_message = format!("other than clear_... {NOT_SUPPORTED}");
            fields.reject(format!("{path}[{i}].type"), error_message);
        }
    }
    if fields::as_list(edits, EDITS_MAX).is_none() {
        fields.reject(path, format!("must be a list of at most {EDITS_MAX} edits"));
    }
}

/// Validates the caller's metadata, which has no effect.
fn check_metadata(fields: &mut Fields<'_>) {
    fields.record(
        "metadata",
        || json!({"properties": {"user_id": {"type": ["string", "null"]}}}),
    );
    let Some(object) = fields.object("metadata") else {
        return;
    };
    let user = object.get("user_id");
    if user.is_some_and(|raw| fields::as_text(raw).is_none()) {
        fields.reject("metadata.user_id", "must be a string");
    }
}

fn parse_stop_sequences(fields: &mut Fields<'_>) -> Option<Vec<String>> {
    let raw = fields.described("stop_sequences", || {
        json!({"type": "array", "items": generation_fields::stop_string_schema(1), "maxItems": STOPS_MAX})
    })?;
    let items =
        fields::as_list(raw, STOPS_MAX).or_reject(fields, "stop_sequences", too_many_stops())?;
    let stops = short_strings(fields, "stop_sequences", items, STOP_BYTES_MAX);
    Some(stops)
}

fn too_many_stops() -> String {
    format!("must be a list of at most {STOPS_MAX} strings")
}

/// Parses the response format, if there is one; `other` is the one from this server's own fields. A second response
/// format is an error.
fn parse_output_format(
    fields: &mut Fields<'_>,
    other: Option<ResponseFormat>,
) -> Option<ResponseFormat> {
    const NAME: &str = "output_config.format";
    const BEFORE: &str = "output_format";
    let config = fields.object("output_config");
    let new = config.as_ref().and_then(|config| config.get("format"));
    let new = new.and_then(|raw| parse_format(fields, NAME, raw));
    let old = fields.described(BEFORE, || json!({"type": "object"}));
    let old = old.and_then(|raw| parse_format(fields, BEFORE, raw));
    let mut response_formats = [new, old, other].into_iter().flatten();
    let first = response_formats.next()?;
    if let Some(second) = response_formats.next() {
        let error_message = format!("must not be given together with {}", first.field);
        fields.reject(second.field, error_message);
    }
    Some(first)
}

/// Parses `{"type":"json_schema","schema":{..}}` or null.
fn parse_format(fields: &mut Fields<'_>, name: &str, raw: RawJson<'_>) -> Option<ResponseFormat> {
    if raw.get() == "null" {
        return None;
    }
    let format = fields::as_object(raw).or_reject(fields, name, "must be an object")?;
    let kind = format.text("type");
    if kind.as_deref() != Some("json_schema") {
        fields.reject(format!("{name}.type"), "must be json_schema");
        return None;
    }
    match format.get("schema") {
        Some(schema) => {
            response_format::json_schema_format(fields, &format!("{name}.schema"), schema)
        }
        None => fields.no_value(
            format_args!("{name}.schema"),
            "is required: a JSON Schema (an object)",
        ),
    }
}

/// Limit of a tool name in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Parses the tools into OpenAI's format, which chat templates expect. Errors are recorded in `fields`.
pub(crate) fn parse_tools(fields: &mut Fields<'_>) -> Tools {
    let tools = parse_tool_list(fields, ".name", parse_tool);
    let has_left_out = fields.left_out_names().next().is_some();
    let (choice, single_call) = parse_tool_choice(fields, !tools.is_empty() || has_left_out);
    Tools::new(tools, &choice, single_call).unwrap_or_else(|| {
        fields.reject("tool_choice.name", "must be one of the given tools");
        Tools::default()
    })
}

fn parse_tool(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<(String, Value)> {
    let Some(tool) = fields::as_object(raw) else {
        fields.reject(path, "must be an object with a name and an input_schema");
        return None;
    };
    expect_type(fields, path, &tool, "custom")?;
    let strict = tool.get("strict").map(fields::parse_value::<bool>);
    if strict == Some(None) {
        fields.reject(format!("{path}.strict"), "must be true or false");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let name = tool.text("name");
    let name = name
        .filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain))
        .or_reject(
            fields,
            format_args!("{path}.name"),
            format_args!("must be 1 to {NAME_BYTES_MAX} letters, digits, underscores and hyphens"),
        );
    let schema = tool
        .get("input_schema")
        .and_then(fields::schema_object)
        .or_reject(
            fields,
            format_args!("{path}.input_schema"),
            fields::SCHEMA_MESSAGE,
        );
    let mut function = Map::new();
    if let Some(raw) = tool.get("description") {
        match fields::as_text(raw) {
            Some(text) => {
                function.insert("description".to_owned(), Value::String(text.into_owned()));
            }
            None => fields.reject(format!("{path}.description"), "must be a string"),
        }
    }
    let name = name?.into_owned();
    function.insert("name".to_owned(), Value::String(name.clone()));
    function.insert("parameters".to_owned(), schema?);
    if let Some(strict) = strict.flatten() {
        function.insert("strict".to_owned(), Value::Bool(strict));
    }
    let tool = json!({"type": "function", "function": function});
    Some((name, tool))
}

/// Parses `tool_choice`, and whether at most one call is allowed.
fn parse_tool_choice(fields: &mut Fields<'_>, has_tools: bool) -> (ToolChoice, bool) {
    fields.record("tool_choice", || {
        json!({"required": ["type"], "properties": {"type": {"enum": ["auto", "any", "tool", "none"]}}})
    });
    if fields.object("tool_choice").is_none() {
        return (ToolChoice::Auto, false);
    }
    let (choice, single_call) = fields.within("tool_choice", |fields| {
        let single_call = fields.boolean("disable_parallel_tool_use") == Some(true);
        (choice_by_type(fields), single_call)
    });
    if !has_tools && choice != ToolChoice::None {
        fields.reject("tool_choice", "needs tools");
        return (ToolChoice::Auto, single_call);
    }
    (choice, single_call)
}

fn choice_by_type(fields: &mut Fields<'_>) -> ToolChoice {
    let name = fields.string("name");
    match (fields.string("type").as_deref(), name) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("any"), _) => ToolChoice::Required,
        (Some("tool"), Some(name)) => ToolChoice::Named(name.into_owned()),
        (Some("tool"), None) => {
            fields.reject("name", "is required: the tool to call");
            ToolChoice::Auto
        }
        _ => {
            fields.reject("type", "must be auto, any, tool or none");
            ToolChoice::Auto
        }
    }
}
