//! Parsers of request fields that Ollama's routes share.

use crate::fields::{self, Fields, Kind};
use crate::openai::{chat_request, generation_fields};
use crate::response_format;
use generate::request::{GenerationParams, StreamOptions};
use generate::response_format::{ResponseFormat, any_object};
use serde_json::{Map, Value};

/// Error message for unsupported features.
pub const NOT_SUPPORTED: &str = "is not supported yet by this server";
/// Limit of `repeat_last_n`.
const WINDOW_MAX: i128 = u32::MAX as i128;

/// Defaults of Ollama's sampling parameters.
const TEMPERATURE: f32 = 0.8;
const TOP_K: u32 = 40;
const TOP_P: f32 = 0.9;
const REPEAT_PENALTY: f32 = 1.1;

/// Parses the generation parameters: `options`, `logprobs` and `format`.
pub fn generation_params(fields: &mut Fields<'_>, vocab: usize) -> GenerationParams {
    let mut params = fields.within("options", |options| sampling_options(options, vocab));
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
    match (fields::kind(raw), fields::text(raw).as_deref()) {
        (_, Some("")) => None,
        (_, Some("json")) => Some(any_object(NAME)),
        (Kind::Object, _) => response_format::json_schema_format(fields, NAME, raw),
        _ => {
            fields.wrong(NAME, "must be \"json\" or a JSON Schema (an object)");
            None
        }
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
    let (is_enabled, effort) = match (fields::read::<bool>(raw), fields::text(raw)) {
        (Some(is_enabled), _) => (is_enabled, None),
        (_, Some(effort)) if matches!(&*effort, "low" | "medium" | "high") => (true, Some(effort)),
        _ => {
            fields.wrong("think", "must be true, false, low, medium or high");
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

/// Parses `options`. Those about loading a model (`num_ctx`, `num_gpu` ...) are settings of the operator here and are
/// ignored, as are unknown options.
fn sampling_options(options: &mut Fields<'_>, vocab: usize) -> GenerationParams {
    let mut params = generation_fields::generation_params(options, vocab);
    let sampling = &mut params.sampling;
    let is_absent = |name| options.raw(name).is_none();
    if is_absent("temperature") {
        sampling.temperature = TEMPERATURE;
    }
    if is_absent("top_p") {
        sampling.top_p = TOP_P;
    }
    if is_absent("top_k") && sampling.top_k == 0 {
        sampling.top_k = TOP_K;
    }
    if is_absent("repeat_penalty") && is_absent("repetition_penalty") {
        sampling.repetition_penalty = REPEAT_PENALTY;
    }
    match options.integer("repeat_last_n", -1..=WINDOW_MAX) {
        // The window is the whole context.
        Some(-1) => sampling.penalty_window = 0,
        Some(0) => {
            sampling.repetition_penalty = 1.0;
            (sampling.presence_penalty, sampling.frequency_penalty) = (0.0, 0.0);
        }
        Some(window) => sampling.penalty_window = u32::try_from(window).unwrap_or(u32::MAX),
        None => {}
    }
    // -1 (unlimited) and -2 (until the context is full) both mean the limit of the context.
    if let Some(predict) = options.integer("num_predict", -2..=i128::from(u32::MAX)) {
        let max = usize::try_from(predict).ok().filter(|&predict| predict > 0);
        generation_fields::replace_max_tokens(options, &mut params, max);
    }
    let seed = options.raw("seed").and_then(fields::whole_number);
    if seed.is_some_and(|seed| seed < 0) {
        params.seed = None;
    }
    params
}

/// Validates options that are stored in a derived model; errors are recorded in `options`.
pub fn check_options(options: &mut Fields<'_>) {
    sampling_options(options, u32::MAX as usize);
}

/// Parses a string member; errors are recorded in `fields`.
pub fn string_field(fields: &mut Fields<'_>, name: &str) -> Option<String> {
    let text = fields.string(name);
    text.map(std::borrow::Cow::into_owned)
}

/// Whether a field is present and not empty.
pub fn is_given(fields: &Fields<'_>, name: &str) -> bool {
    fields.raw(name).is_some_and(|raw| match fields::kind(raw) {
        Kind::String => raw.get() != "\"\"",
        Kind::Array => fields::list(raw, 0).is_none(),
        _ => true,
    })
}
