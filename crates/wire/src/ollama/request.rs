//! Parsers of request fields that Ollama's routes share.

use crate::fields::{self, Fields, JsonType};
use crate::request_parser::ParseContext;
use crate::response_format;
use crate::shared::llama_options::ollama_options;
use crate::shared::{generation_fields, messages};
use generate::prompt_limit::Truncation;
use generate::request::{GenerationParams, ResponseFormat, StreamOptions, any_object};
use serde_json::{Map, Value, json};

/// Error message for unsupported features.
pub const NOT_SUPPORTED: &str = "is not supported yet by this server";

/// Parses the generation parameters: `options`, `logprobs` and `format`.
pub fn generation_params(fields: &mut Fields<'_>, context: &ParseContext<'_>) -> GenerationParams {
    let mut params = fields.within("options", |options| {
        let given = ollama_options(options, context.vocab_size);
        context.defaults.note_problems(options);
        let params = context.defaults.resolve(given);
        generation_fields::check_min_tokens(options, &params);
        params
    });
    generation_fields::parse_logprobs(fields, &mut params.sampling);
    if let Some(format) = &mut params.response_format {
        format.field = format!("options.{}", format.field);
    }
    fields.record(
        "structured_outputs",
        || json!({"description": "only disable_additional_properties is read"}),
    );
    params.response_format = ollama_format(fields).or(params.response_format);
    params.closed_objects = response_format::closed_objects_field(fields).or(params.closed_objects);
    params
}

/// Parses `format`, which is "json" or a JSON schema.
fn ollama_format(fields: &mut Fields<'_>) -> Option<ResponseFormat> {
    const NAME: &str = "format";
    let schema = || json!({"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]});
    let raw = fields.described(NAME, schema)?;
    match (fields::json_type(raw), fields::as_text(raw).as_deref()) {
        (_, Some("")) => None,
        (_, Some("json")) => Some(any_object(NAME)),
        (JsonType::Object, _) => response_format::json_schema_format(fields, NAME, raw),
        _ => {
            fields.reject(NAME, "must be \"json\" or a JSON Schema (an object)");
            None
        }
    }
}

/// Parses `truncate`: what is dropped from a prompt that is too long, unless the request turns that off. The default is true,
/// as in Ollama.
pub fn truncation(fields: &mut Fields<'_>, dropped: Truncation) -> Truncation {
    match fields.boolean("truncate") {
        Some(false) => Truncation::Disabled,
        Some(true) | None => dropped,
    }
}

/// Parses the stream options. The default of `stream` is true.
pub fn stream_options(fields: &mut Fields<'_>) -> StreamOptions {
    let mut stream_options = generation_fields::stream_options(fields);
    stream_options.stream = fields.raw("stream").is_none() || stream_options.stream;
    stream_options
}

/// Parses the variables of the chat template; `think` sets every variable that templates read for reasoning.
pub fn template_kwargs(fields: &mut Fields<'_>) -> Map<String, Value> {
    let mut kwargs = messages::template_kwargs(fields);
    let schema = || json!({"anyOf": [{"type": "boolean"}, {"enum": ["low", "medium", "high"]}]});
    let Some(raw) = fields.described("think", schema) else {
        return kwargs;
    };
    let (is_enabled, effort) = match (fields::parse_value::<bool>(raw), fields::as_text(raw)) {
        (Some(is_enabled), _) => (is_enabled, None),
        (_, Some(effort)) if matches!(&*effort, "low" | "medium" | "high") => (true, Some(effort)),
        _ => {
            fields.reject("think", "must be true, false, low, medium or high");
            return kwargs;
        }
    };
    for name in ["enable_thinking", "thinking"] {
        kwargs.entry(name).or_insert(Value::Bool(is_enabled));
    }
    if let Some(effort) = effort {
        let effort = Value::String(effort.into_owned());
        kwargs.entry("reasoning_effort").or_insert(effort);
    }
    kwargs
}

/// Parses a string member; errors are recorded in `fields`.
pub fn string_field(fields: &mut Fields<'_>, name: &str) -> Option<String> {
    let text = fields.string(name);
    text.map(std::borrow::Cow::into_owned)
}

/// Whether a field is present and not empty.
pub fn is_given(fields: &Fields<'_>, name: &str) -> bool {
    fields
        .raw(name)
        .is_some_and(|raw| match fields::json_type(raw) {
            JsonType::String => raw.get() != "\"\"",
            JsonType::Array => fields::as_list(raw, 0).is_none(),
            _ => true,
        })
}
