//! Parsers of request fields that Ollama's routes share.

use crate::fields::{self, Fields, JsonType};
use crate::openai::{chat_request, generation_fields};
use crate::request_parser::ParseContext;
use crate::response_format;
use generate::generation_options::{GenerationOptions, PenaltyWindow, Seed, TokenLimit};
use generate::request::{GenerationParams, StreamOptions};
use generate::response_format::{ResponseFormat, any_object};
use generate::truncation::Truncation;
use serde_json::{Map, Value};

/// Error message for unsupported features.
pub const NOT_SUPPORTED: &str = "is not supported yet by this server";
/// Limit of `repeat_last_n`.
const WINDOW_MAX: i128 = u32::MAX as i128;

/// Parses the generation parameters: `options`, `logprobs` and `format`.
pub fn generation_params(fields: &mut Fields<'_>, context: &ParseContext<'_>) -> GenerationParams {
    let mut params = fields.within("options", |options| {
        let given = generation_options(options, context.vocab_size);
        context.defaults.note_problems(options);
        let params = context.defaults.resolve(given);
        generation_fields::check_min_tokens(options, &params);
        params
    });
    chat_request::parse_logprobs(fields, &mut params.sampling);
    if let Some(format) = &mut params.response_format {
        format.field = format!("options.{}", format.field);
    }
    params.response_format = ollama_format(fields).or(params.response_format);
    params.closed_objects = response_format::closed_objects_field(fields).or(params.closed_objects);
    params
}

/// Parses `format`, which is "json" or a JSON schema.
fn ollama_format(fields: &mut Fields<'_>) -> Option<ResponseFormat> {
    const NAME: &str = "format";
    let raw = fields.raw(NAME)?;
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
    let mut kwargs = chat_request::template_kwargs(fields);
    let Some(raw) = fields.raw("think") else {
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

/// Parses the options that a request sets in `options`. Those about loading a model (`num_ctx`, `num_gpu` ...) are
/// settings of the operator here and are ignored, as are unknown options.
pub fn generation_options(options: &mut Fields<'_>, vocab: usize) -> GenerationOptions {
    let mut given = llama_options(options, vocab);
    // -1 (unlimited) and -2 (until the context is full) both mean the limit of the context.
    if let Some(predict) = options.integer("num_predict", -2..=i128::from(u32::MAX)) {
        let tokens = usize::try_from(predict).ok().filter(|&predict| predict > 0);
        given.max_tokens = Some(tokens.map_or(TokenLimit::Context, TokenLimit::Tokens));
    }
    given
}

/// Parses the options that Ollama has from llama.cpp: those of OpenAI, `repeat_last_n`, and a negative `seed`.
pub fn llama_options(options: &mut Fields<'_>, vocab: usize) -> GenerationOptions {
    let mut given = generation_fields::generation_options(options, vocab, 1);
    given.penalty_window = options
        .integer("repeat_last_n", -1..=WINDOW_MAX)
        .map(|window| match window {
            -1 => PenaltyWindow::All,
            0 => PenaltyWindow::Off,
            window => PenaltyWindow::Last(u32::try_from(window).unwrap_or(u32::MAX)),
        });
    let seed = options.raw("seed").and_then(fields::whole_number);
    if seed.is_some_and(|seed| seed < 0) {
        given.seed = Some(Seed::Random);
    }
    given
}

/// Validates options that are stored in a derived model; errors are recorded in `options`.
pub fn check_options(options: &mut Fields<'_>) {
    let params = generation_options(options, u32::MAX as usize).resolve();
    generation_fields::check_min_tokens(options, &params);
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
