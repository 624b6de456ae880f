//! Parser of `POST /v1/responses`.

use super::conversation::{self, ConversationBuilder};
use super::tools;
use crate::derived_model::ModelDefaults;
use crate::fields::{self, Fields, JsonObject};
use crate::json;
use crate::request_parser::{ParseContext, ParsedBody};
use crate::schema::written_as;
use crate::shared::tool_calls::without_blanks;
use crate::shared::{generation_fields, messages};
use crate::stored_request::{History, StoredKind, StoredRequest, parse_metadata};
use crate::{field_table, response_format};
use engine::SamplingParams;
use generate::error::ApiError;
use generate::prompt_limit::Truncation;
use generate::request::{GenerationParams, MESSAGES_MAX, StreamOptions, TOP_LOGPROBS_MAX};
use generate::request::{ResponseFormat, any_object};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

/// Values of `truncation`.
const AUTO: &str = "auto";
const DISABLED: &str = "disabled";
/// Value of `include` that requests log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

/// Limit of the bytes of all earlier items of a conversation: four times the default limit of a body.
const HISTORY_BYTES_MAX: usize = 16 << 20;

/// Parses a request, and the part to be stored unless `store` is false.
/// Besides OpenAI's fields, this server's generation parameters (`seed`, `min_p`, ...) are accepted.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let mut conversation = ConversationBuilder::default();
    let instructions = fields.string("instructions");
    if let Some(text) = &instructions {
        conversation.add_instructions(text.clone().into_owned());
    }
    let previous = fields.string("previous_response_id");
    let before = previous.map(|id| (context.history)(&id)).transpose()?;
    if let Some(history) = &before {
        add_history(&mut fields, &mut conversation, &**history);
    }
    let items = conversation::parse_input(&mut fields, &mut conversation, context.history);
    let instructions = match instructions {
        Some(_) => None,
        None => model_instructions(&mut conversation, &context.defaults),
    };
    let added = std::mem::take(&mut conversation.tools);
    let mut tools = tools::parse_tools(&mut fields, added);
    let offered_tools = std::mem::take(&mut tools.offered);
    let kwargs = messages::template_kwargs(&mut fields);
    let mut params = generation_fields::generation_params_with_min(&mut fields, context, 1);
    let max = fields.integer_as("max_output_tokens", 1..=i128::from(u32::MAX));
    params.max_tokens = max.or(params.max_tokens);
    generation_fields::check_min_tokens(&mut fields, &params);
    params.response_format = single_response_format(&mut fields, params.response_format);
    let tools = params.take_tools(tools);
    params.reasoning_budget = messages::reasoning_budget(&mut fields);
    parse_logprobs(&mut fields, &mut params.sampling);
    check_ignored_fields(&mut fields);
    params.truncation = parse_truncation(&mut fields);
    let (mut stream_options, is_stored) = stream_options(&mut fields);
    let repeats = repeated_fields(&fields, is_stored, &params, instructions);
    stream_options.repeated_fields = Some(repeats.into());
    stream_options.offered_tools = offered_tools;
    let images = fields.take_images();
    stream_options.ignored_fields = fields.finish_request(&field_table::RESPONSES)?;
    let prompt = messages::prompt("input", conversation.turns.messages, tools, kwargs);
    let stored = StoredRequest {
        previous: before.and_then(|history| history.id()),
        ..StoredRequest::new(StoredKind::Response, items.unwrap_or_default())
    };
    Ok(ParsedBody {
        stored_request: is_stored.then_some(stored),
        ..ParsedBody::of_prompts([prompt], params, stream_options).with_images(images)
    })
}

/// Puts the system message of a derived model before a conversation without one, and returns the text.
fn model_instructions(
    conversation: &mut ConversationBuilder,
    defaults: &ModelDefaults,
) -> Option<Value> {
    let system = defaults.system_message(&conversation.turns.messages)?;
    let text = system.content.clone();
    conversation.turns.messages.insert(0, system);
    Some(text)
}

/// Adds the earlier conversation.
fn add_history(
    fields: &mut Fields<'_>,
    conversation: &mut ConversationBuilder,
    history: &dyn History,
) {
    const NAME: &str = "previous_response_id";
    if history.items().count() > MESSAGES_MAX {
        return fields.reject(NAME, format!("has more than {MESSAGES_MAX} earlier items"));
    }
    let bytes: usize = history.items().map(str::len).sum();
    if bytes > HISTORY_BYTES_MAX {
        return fields.reject(
            NAME,
            format!("has {bytes} bytes of earlier items; the limit is {HISTORY_BYTES_MAX}"),
        );
    }
    for item in history.items() {
        // The item was validated before it was stored.
        if let Ok(raw) = serde_json::from_str(item) {
            conversation.add_item(fields, NAME, raw);
        }
    }
}

/// Parses the response format; a second one, in this server's own fields, is an error.
fn single_response_format(
    fields: &mut Fields<'_>,
    other: Option<ResponseFormat>,
) -> Option<ResponseFormat> {
    let response_format = parse_text_format(fields);
    if let (Some(_), Some(other)) = (&response_format, &other) {
        let error_message = format!("must not be given together with {}", other.field);
        fields.reject("text.format", error_message);
    }
    response_format.or(other)
}

fn parse_logprobs(fields: &mut Fields<'_>, sampling: &mut SamplingParams) {
    let top = fields.integer_as("top_logprobs", 0..=TOP_LOGPROBS_MAX as i128);
    let included = fields.array("include", usize::MAX).unwrap_or_default();
    let is_included = included
        .iter()
        .any(|raw| fields::as_text(*raw).as_deref() == Some(LOGPROBS));
    sampling.top_logprobs = top.unwrap_or(0);
    sampling.logprobs = is_included || sampling.top_logprobs > 0;
}

/// Validates fields without effect.
fn check_ignored_fields(fields: &mut Fields<'_>) {
    fields.integer("n", 1..=1);
    for name in ["prompt_cache_key", "safety_identifier"] {
        fields.string(name);
    }
    // Options about images, and no image.
    fields.object("image");
    parse_metadata(fields);
}

/// Parses `truncation`. With `auto`, the oldest turns are dropped from a conversation that leaves no room for the answer.
fn parse_truncation(fields: &mut Fields<'_>) -> Truncation {
    fields.record("truncation", || json!({"enum": [AUTO, DISABLED]}));
    match fields.string("truncation").as_deref() {
        None | Some(DISABLED) => Truncation::Disabled,
        Some(AUTO) => Truncation::Turns,
        Some(_) => {
            fields.reject("truncation", "must be auto or disabled");
            Truncation::Disabled
        }
    }
}

/// Parses the stream options, and whether the response is stored.
fn stream_options(fields: &mut Fields<'_>) -> (StreamOptions, bool) {
    let is_stored = fields.boolean("store").unwrap_or(true);
    let background = fields.boolean("background").unwrap_or(false);
    if background && !is_stored {
        fields.reject("background", "needs \"store\": true");
    }
    let webhook = generation_fields::webhook(fields);
    let stream_options = StreamOptions {
        // Every response reports its usage.
        include_usage: true,
        background,
        webhook,
        ..generation_fields::stream_options(fields)
    };
    (stream_options, is_stored)
}

/// Request fields that the response repeats: the members of a JSON object, without braces.
fn repeated_fields(
    fields: &Fields<'_>,
    is_stored: bool,
    params: &GenerationParams,
    instructions: Option<Value>,
) -> String {
    let sampling = &params.sampling;
    // Parsed and written again, so that the value is on one line.
    let given = |name: &str| fields.raw(name).and_then(fields::parse_value::<Value>);
    let or = |name: &str, default: Value| given(name).unwrap_or(default);
    let over = |name: &str, mut defaults: Value| {
        if let Some(Value::Object(given)) = given(name) {
            for (name, value) in given.into_iter().filter(|(_, value)| !value.is_null()) {
                defaults[name] = value;
            }
        }
        defaults
    };
    let before_tools = json!({
        "frequency_penalty": or("frequency_penalty", json::shortest_number(sampling.frequency_penalty)),
        "instructions": or("instructions", instructions.unwrap_or_default()),
        "max_output_tokens": params.max_tokens,
        "max_tool_calls": or("max_tool_calls", Value::Null),
        "metadata": or("metadata", json!({})),
        "parallel_tool_calls": or("parallel_tool_calls", json!(true)),
        "presence_penalty": or("presence_penalty", json::shortest_number(sampling.presence_penalty)),
        "previous_response_id": or("previous_response_id", Value::Null),
        "prompt_cache_key": or("prompt_cache_key", Value::Null),
        "reasoning": over("reasoning", json!({"effort": null, "summary": null})),
        "safety_identifier": or("safety_identifier", Value::Null),
        "service_tier": "default",
        "store": is_stored,
        "temperature": or("temperature", json::shortest_number(sampling.temperature)),
        "text": over("text", json!({"format": {"type": "text"}})),
        "tool_choice": or("tool_choice", json!("auto")),
    });
    let after_tools = json!({
        "top_logprobs": sampling.top_logprobs,
        "top_p": or("top_p", json::shortest_number(sampling.top_p)),
        "truncation": if params.truncation.is_disabled() { DISABLED } else { AUTO },
        "user": or("user", Value::Null),
    });
    // The tools keep the digits of their numbers.
    let tools = fields.raw("tools").map(|raw| without_blanks(raw.get()));
    let [before, after] = [before_tools, after_tools].map(|members| members.to_string());
    format!(
        "{},\"tools\":{},{}",
        &before[1..before.len() - 1],
        tools.as_deref().unwrap_or("[]"),
        &after[1..after.len() - 1]
    )
}

/// Parses the response format, if there is one.
fn parse_text_format(fields: &mut Fields<'_>) -> Option<ResponseFormat> {
    const NAME: &str = "text.format";
    fields.record("text", || {
        json!({"properties": {
            "format": {"type": ["object", "null"]}, "verbosity": {"type": ["string", "null"]},
        }})
    });
    let text = fields.object("text")?;
    let verbosity = text.get("verbosity");
    if verbosity.is_some_and(|raw| fields::as_text(raw).is_none()) {
        fields.reject("text.verbosity", "must be a string");
    }
    let raw = text.get("format")?;
    let format = fields::as_object(raw);
    let kind = format.as_ref().and_then(|format| format.get("type"));
    match (kind.and_then(fields::as_text).as_deref(), &format) {
        (Some("text"), _) => None,
        (Some("json_object"), _) => Some(any_object(NAME)),
        (Some("json_schema"), Some(format)) => match format.get("schema") {
            Some(schema) => {
                let parsed =
                    response_format::json_schema_format(fields, &format!("{NAME}.schema"), schema);
                response_format::check_strict(fields, parsed, format.get("strict"))
            }
            None => fields.no_value(
                format_args!("{NAME}.schema"),
                "is required: a JSON Schema (an object)",
            ),
        },
        _ => fields.no_value(
            format_args!("{NAME}.type"),
            "must be one of text, json_object, json_schema",
        ),
    }
}

/// The repeated fields of a response whose stream was opened in another protocol.
const DEFAULTS: &str = concat!(
    r#""frequency_penalty":0.0,"instructions":null,"max_output_tokens":null,"metadata":{},"parallel_tool_calls":true,"presence_penalty":0.0,"#,
    r#""previous_response_id":null,"reasoning":{"effort":null,"summary":null},"service_tier":"default","#,
    r#""store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"#,
    r#""top_logprobs":0,"top_p":1.0,"truncation":"disabled","user":null"#
);

/// An object of the repeated fields as JSON.
pub(crate) struct RequestFields(String);

impl RequestFields {
    /// The members of an object, given without braces.
    pub(crate) fn new(members: Option<&str>) -> Self {
        Self(format!("{{{}}}", members.unwrap_or(DEFAULTS)))
    }
}

/// Fields of the request that the response repeats.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RepeatedFields {
    frequency_penalty: f64,
    instructions: Option<String>,
    max_output_tokens: Option<u64>,
    #[schemars(skip_serializing_if = "Value::is_null")]
    max_tool_calls: Value,
    metadata: Map<String, Value>,
    parallel_tool_calls: bool,
    presence_penalty: f64,
    previous_response_id: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    reasoning: Map<String, Value>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<String>,
    service_tier: String,
    store: bool,
    temperature: f64,
    text: Map<String, Value>,
    tool_choice: Value,
    tools: Vec<Value>,
    top_logprobs: u64,
    top_p: f64,
    truncation: String,
    user: Option<String>,
}

written_as!(RequestFields => RepeatedFields);

impl Serialize for RequestFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object: Option<JsonObject<'_>> = serde_json::from_str(&self.0).ok();
        serializer.collect_map(object.iter().flat_map(JsonObject::entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_field_keeps_its_spelling() {
        for members in [DEFAULTS, r#""a":0.10000000000000001,"b":[1e400,"\u0041"]"#] {
            let fields = RequestFields::new(Some(members));
            assert_eq!(
                serde_json::to_string(&fields).unwrap(),
                format!("{{{members}}}")
            );
        }
    }
}
