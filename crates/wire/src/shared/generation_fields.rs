//! Parsers of request fields of generations: this server's names, in all protocols.

use super::lora_field;
use crate::fields::bounds::{short_strings, token_id, token_id_message};
use crate::fields::recorder::token_id_schema;
use crate::fields::{self, Fields, JsonType, OrReject, RawJson, number_in};
use crate::request_parser::ParseContext;
use crate::response_format;
use engine::{DRY_BASE_MAX, DRY_MULTIPLIER_MAX, DRY_WINDOW_MAX, SamplingParams};
use generate::generation_options::{GenerationOptions, PenaltyWindow, Seed, TokenLimit};
use generate::prompt_limit::Truncation;
use generate::request::Priority;
use generate::request::{
    CACHE_SALT_BYTES_MAX, CHOICES_MAX, DRY_BREAKER_BYTES_MAX, DRY_BREAKERS_MAX, GenerationParams,
    LOGIT_BIAS_MAX, STOP_BYTES_MAX, STOP_IDS_MAX, STOPS_MAX, StreamOptions, TOP_LOGPROBS_MAX,
    WEBHOOK_URL_BYTES_MAX,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Limit of `deadline_ms`: a day.
pub const DEADLINE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Bias of a token that is never sampled: more than any two logits differ by.
const BIAS_NEVER: f32 = -1e6;
/// Error message for an invalid `priority`.
const PRIORITY_MESSAGE: &str = "must be critical, high, normal, low, background, or an integer (0 is normal, less is more urgent)";

/// Parses the generation parameters, except `logprobs`, which differ between protocols.
pub fn generation_params(fields: &mut Fields<'_>, context: &ParseContext<'_>) -> GenerationParams {
    let params = generation_params_with_min(fields, context, 1);
    check_min_tokens(fields, &params);
    params
}

/// Parses the generation parameters with `max_tokens_min` as the lower limit of `max_tokens`. The caller checks
/// `min_tokens` when the limit of the answer's length is known ([`check_min_tokens`]).
pub fn generation_params_with_min(
    fields: &mut Fields<'_>,
    context: &ParseContext<'_>,
    max_tokens_min: i128,
) -> GenerationParams {
    let given = GenerationOptions {
        lora: lora_field::lora(fields, context.adapters),
        ..generation_options(fields, context.vocab_size, max_tokens_min)
    };
    context.defaults.note_problems(fields);
    context.defaults.resolve(given)
}

/// Parses the generation parameters that a request sets.
pub fn generation_options(
    fields: &mut Fields<'_>,
    vocab: usize,
    max_tokens_min: i128,
) -> GenerationOptions {
    let stops = stop_strings(fields);
    let stop_token_ids = stop_token_ids(fields, vocab);
    let max_tokens = max_tokens(fields, max_tokens_min);
    let options = sampling_options(fields, vocab);
    let ignore_eos = fields.boolean("ignore_eos");
    let min_tokens = min_tokens(fields, max_tokens);
    let seed = fields.integer("seed", i128::from(i64::MIN)..=i128::from(u64::MAX));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "any 64 bits are a seed"
    )]
    let seed = seed.map(|seed| Seed::Fixed(seed as u64));
    GenerationOptions {
        stops,
        stop_token_ids,
        max_tokens: max_tokens.map(TokenLimit::Tokens),
        ignore_eos,
        min_tokens,
        seed,
        response_format: response_format::parse_response_format(fields),
        closed_objects: response_format::closed_objects_field(fields),
        ..options
    }
}

/// Parses `min_tokens`, which is at most `max_tokens`.
fn min_tokens(fields: &mut Fields<'_>, max_tokens: Option<usize>) -> Option<u32> {
    let high = max_tokens.and_then(|max| u32::try_from(max).ok());
    let high = high.unwrap_or(u32::MAX);
    fields.integer_as("min_tokens", 0..=i128::from(high))
}

/// Records a problem of `min_tokens` that is more than the answer may have, after other fields and defaults have set
/// `max_tokens`.
pub fn check_min_tokens(fields: &mut Fields<'_>, params: &GenerationParams) {
    if let Some(max) = params.max_tokens
        && params.sampling.min_tokens as usize > max
    {
        fields.reject("min_tokens", format!("must be an integer from 0 to {max}"));
    }
}

/// Parses vLLM's `truncate_prompt_tokens`: the number of last tokens of a prompt that are kept. -1 keeps as many as leave room
/// for the answer.
pub fn prompt_truncation(fields: &mut Fields<'_>) -> Truncation {
    const NAME: &str = "truncate_prompt_tokens";
    fields.record(NAME, || {
        json!({"not": {"const": 0}, "description": "tokens of the prompt that are kept, the last ones; -1: as many as leave room for the answer"})
    });
    match fields.integer(NAME, -1..=i128::from(u32::MAX)) {
        None => Truncation::Disabled,
        Some(0) => {
            fields.reject(NAME, "must be -1 or at least 1");
            Truncation::Disabled
        }
        Some(tokens) => Truncation::LastTokens(usize::try_from(tokens).ok()),
    }
}

/// Parses the stream options.
pub fn stream_options(fields: &mut Fields<'_>) -> StreamOptions {
    let stream = fields.boolean("stream").unwrap_or(false);
    fields.record("stream_options", || {
        let flag = json!({"type": ["boolean", "null"]});
        json!({"properties": {"include_usage": flag, "continuous_usage_stats": flag}})
    });
    let options = fields.object("stream_options");
    let mut option = |name: &str| {
        let raw = options.as_ref().and_then(|options| options.get(name))?;
        let value = fields::parse_value::<bool>(raw);
        value.or_reject(
            fields,
            format_args!("stream_options.{name}"),
            "must be true or false",
        )
    };
    let include_usage = option("include_usage").unwrap_or(false);
    let continuous_usage = include_usage && option("continuous_usage_stats").unwrap_or(false);
    let (priority, service_tier_given) = priority_and_tier(fields);
    let deadline = fields.integer_as("deadline_ms", 1..=i128::from(DEADLINE_MS_MAX));
    StreamOptions {
        stream,
        include_usage,
        continuous_usage,
        priority,
        deadline: deadline.map(Duration::from_millis),
        service_tier_given,
        cache_salt: cache_salt(fields),
        ..StreamOptions::default()
    }
}

/// Parses `webhook`, the URL that receives an event at the end. The gateway checks the URL against the operator's
/// settings.
pub fn webhook(fields: &mut Fields<'_>) -> Option<Box<str>> {
    fields.record("webhook", || {
        json!({
            "format": "uri", "minLength": 1, "maxLength": WEBHOOK_URL_BYTES_MAX,
            "description": "URL that receives a signed event when the stream has ended; of a host that the operator allows",
        })
    });
    let url = fields.string("webhook")?;
    if url.is_empty() || url.len() > WEBHOOK_URL_BYTES_MAX {
        let error_message = format!("must be a URL of at most {WEBHOOK_URL_BYTES_MAX} bytes");
        fields.reject("webhook", error_message);
        return None;
    }
    Some(url.into())
}

/// Parses vLLM's `cache_salt`.
fn cache_salt(fields: &mut Fields<'_>) -> Option<Box<str>> {
    fields.record("cache_salt", || {
        json!({
            "minLength": 1, "maxLength": CACHE_SALT_BYTES_MAX,
            "description": "share cached prompts only with requests that have the same salt",
        })
    });
    let salt = fields.string("cache_salt")?;
    if !(1..=CACHE_SALT_BYTES_MAX).contains(&salt.len()) {
        let error_message = format!("must have 1 to {CACHE_SALT_BYTES_MAX} bytes");
        fields.reject("cache_salt", error_message);
        return None;
    }
    Some(salt.into())
}

/// Parses `n`, the number of answers for each of `prompts` prompts.
pub fn choice_count(fields: &mut Fields<'_>, prompts: usize) -> usize {
    let n: usize = fields.integer_as("n", 1..=CHOICES_MAX as i128).unwrap_or(1);
    if n * prompts > CHOICES_MAX {
        fields.reject(
            "n",
            format!(
                "prompts times n must be at most {CHOICES_MAX}, not {}",
                n * prompts
            ),
        );
    }
    n
}

/// Parses `logprobs` and `top_logprobs`.
pub fn parse_logprobs(fields: &mut Fields<'_>, sampling: &mut SamplingParams) {
    sampling.logprobs = fields.boolean("logprobs").unwrap_or(false);
    let top = fields.integer_as("top_logprobs", 0..=TOP_LOGPROBS_MAX as i128);
    sampling.top_logprobs = top.unwrap_or(0);
    if sampling.top_logprobs > 0 && !sampling.logprobs {
        fields.reject("top_logprobs", "needs \"logprobs\": true");
    }
}

/// Rejects `logprobs` and `top_logprobs` that turn them on, for a protocol without log-probabilities.
pub(crate) fn reject_logprobs(fields: &mut Fields<'_>) {
    for name in ["logprobs", "top_logprobs"] {
        let is_off = |raw: RawJson<'_>| matches!(raw.get(), "false" | "0");
        let raw = fields.described(name, || json!({"enum": [false, 0]}));
        if raw.is_some_and(|raw| !is_off(raw)) {
            fields.reject(
                name,
                "is not supported in this wire format: use another one for this stream",
            );
        }
    }
}

fn sampling_options(fields: &mut Fields<'_>, vocab: usize) -> GenerationOptions {
    GenerationOptions {
        temperature: fields.number("temperature", 0.0..=2.0),
        top_k: top_k(fields),
        top_p: fields.number("top_p", 0.0..=1.0),
        min_p: fields.number("min_p", 0.0..=1.0),
        typical_p: fields.number("typical_p", POSITIVE_MIN..=1.0),
        repetition_penalty: repetition_penalty(fields),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0),
        logit_bias: logit_bias(fields, vocab),
        ..dry_xtc_options(fields)
    }
}

/// Lower limit of fields that must be positive.
const POSITIVE_MIN: f64 = 1e-6;

/// Parses the repetition penalty under either of its two names.
fn repetition_penalty(fields: &mut Fields<'_>) -> Option<f32> {
    let plain = fields.number("repetition_penalty", POSITIVE_MIN..=10.0);
    let llama = fields.number("repeat_penalty", POSITIVE_MIN..=10.0);
    plain.or(llama)
}

/// Parses `top_k`; vLLM uses -1 for "off".
fn top_k(fields: &mut Fields<'_>) -> Option<u32> {
    let k = fields.integer("top_k", -1..=i128::from(u32::MAX))?;
    Some(u32::try_from(k).unwrap_or(0))
}

fn max_tokens(fields: &mut Fields<'_>, max_tokens_min: i128) -> Option<usize> {
    let range = || max_tokens_min..=i128::from(u32::MAX);
    let old = fields.integer_as("max_tokens", range());
    let new = fields.integer_as("max_completion_tokens", range());
    new.or(old)
}

fn stop_strings(fields: &mut Fields<'_>) -> Option<Vec<String>> {
    let raw = fields.described("stop", stop_schema)?;
    match (fields::json_type(raw), fields::as_list(raw, STOPS_MAX)) {
        (JsonType::String, _) => match fields::as_text(raw) {
            Some(stop) if stop.is_empty() => return Some(Vec::new()),
            Some(stop) if stop.len() <= STOP_BYTES_MAX => return Some(vec![stop.into_owned()]),
            _ => fields.reject(
                "stop",
                format!("must be a string of 1 to {STOP_BYTES_MAX} bytes"),
            ),
        },
        (_, Some(items)) => return Some(short_strings(fields, "stop", items, STOP_BYTES_MAX)),
        (_, None) => fields.reject(
            "stop",
            format!("must be a string or a list of at most {STOPS_MAX} strings"),
        ),
    }
    Some(Vec::new())
}

fn stop_schema() -> Value {
    let list = json!({"type": "array", "items": stop_string_schema(1), "maxItems": STOPS_MAX});
    json!({
        "anyOf": [stop_string_schema(0), list],
        "description": format!("strings of at most {STOP_BYTES_MAX} bytes; they are not part of the output"),
    })
}

/// The schema of a stop string of at least this length.
pub(crate) fn stop_string_schema(least: usize) -> Value {
    json!({"type": "string", "minLength": least, "maxLength": STOP_BYTES_MAX})
}

fn stop_token_ids(fields: &mut Fields<'_>, vocab: usize) -> Option<Vec<u32>> {
    fields.record("stop_token_ids", || json!({"items": token_id_schema()}));
    let items = fields.array("stop_token_ids", STOP_IDS_MAX)?;
    let mut ids = Vec::with_capacity(items.len());
    for (i, raw) in items.into_iter().enumerate() {
        match token_id(raw, vocab) {
            Some(id) => ids.push(id),
            None => fields.reject(format!("stop_token_ids[{i}]"), token_id_message(vocab)),
        }
    }
    Some(ids)
}

/// Parses `logit_bias`: an object by token id, or llama.cpp's list of pairs.
fn logit_bias(fields: &mut Fields<'_>, vocab: usize) -> Option<Vec<(u32, f32)>> {
    let raw = fields.described("logit_bias", logit_bias_schema)?;
    if fields::json_type(raw) == JsonType::Array {
        return logit_bias_pairs(fields, vocab);
    }
    let map = (fields::json_type(raw) == JsonType::Object)
        .then(|| fields::parse_value::<BTreeMap<Cow<'_, str>, RawJson<'_>>>(raw))
        .flatten();
    let map = map.filter(|map| map.len() <= LOGIT_BIAS_MAX).or_reject(
        fields,
        "logit_bias",
        format_args!("must be an object of at most {LOGIT_BIAS_MAX} token ids"),
    )?;
    let mut biases = Vec::with_capacity(map.len());
    for (name, raw) in map {
        let id = name.parse::<u32>().ok().filter(|&id| (id as usize) < vocab);
        match (id, number_in(raw, &(-100.0..=100.0))) {
            (Some(id), Some(bias)) => biases.push((id, bias)),
            (None, _) => fields.reject(
                "logit_bias",
                format!("each key {}", token_id_message(vocab)),
            ),
            (_, None) => fields.reject(
                format!("logit_bias.{name}"),
                "must be a number from -100 to 100",
            ),
        }
    }
    Some(biases)
}

fn logit_bias_schema() -> Value {
    let bias = json!({"type": "number", "minimum": -100, "maximum": 100});
    let object = json!({
        "type": "object", "maxProperties": LOGIT_BIAS_MAX, "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "additionalProperties": bias,
    });
    let pair = json!({
        "type": "array", "prefixItems": [token_id_schema(), {"anyOf": [bias, {"const": false}]}], "minItems": 2, "maxItems": 2,
    });
    json!({"anyOf": [object, {"type": "array", "items": pair, "maxItems": LOGIT_BIAS_MAX}]})
}

/// Parses a list of pairs of a token id and a bias; `false` is "never".
fn logit_bias_pairs(fields: &mut Fields<'_>, vocab: usize) -> Option<Vec<(u32, f32)>> {
    let items = fields.array("logit_bias", LOGIT_BIAS_MAX)?;
    let mut biases = Vec::with_capacity(items.len());
    for (i, item) in items.into_iter().enumerate() {
        let pair = fields::as_list(item, 2).unwrap_or_default();
        let parsed = match pair.as_slice() {
            [id, bias] => token_id(*id, vocab).zip(pair_bias(*bias)),
            _ => None,
        };
        match parsed {
            Some(pair) => biases.push(pair),
            None => fields.reject(
                format!("logit_bias[{i}]"),
                format!(
                    "must be a pair of a token id below {vocab} and a number from -100 to 100, or false for never"
                ),
            ),
        }
    }
    Some(biases)
}

fn pair_bias(raw: RawJson<'_>) -> Option<f32> {
    match fields::json_type(raw) {
        JsonType::Bool => (raw.get() == "false").then_some(BIAS_NEVER),
        JsonType::Number => {
            fields::parse_value::<f32>(raw).filter(|bias| (-100.0..=100.0).contains(bias))
        }
        _ => None,
    }
}

/// The priority from `priority`, else from `service_tier`; and whether a service tier was given.
fn priority_and_tier(fields: &mut Fields<'_>) -> (Priority, bool) {
    fields.string("user");
    let tier = fields.string("service_tier");
    let of_tier = tier.as_deref().map(Priority::from_service_tier);
    let priority = explicit_priority(fields).or(of_tier).unwrap_or_default();
    (priority, tier.is_some())
}

fn explicit_priority(fields: &mut Fields<'_>) -> Option<Priority> {
    let raw = fields.described("priority", || {
        json!({"anyOf": [
            {"enum": ["critical", "high", "normal", "low", "background"]},
            {"type": "integer", "description": "0 is normal; lower values are more urgent"},
        ]})
    })?;
    let priority = match fields::json_type(raw) {
        JsonType::Number => fields::whole_number(raw).map(Priority::from_number),
        JsonType::String => Priority::from_name(&fields::as_text(raw)?),
        _ => None,
    };
    priority.or_reject(fields, "priority", PRIORITY_MESSAGE)
}

/// Parses the fields; the other options are not set.
fn dry_xtc_options(fields: &mut Fields<'_>) -> GenerationOptions {
    let tokens_max = DRY_WINDOW_MAX as i128;
    let window = fields.integer("dry_penalty_last_n", -1..=tokens_max);
    GenerationOptions {
        dry_multiplier: fields.number("dry_multiplier", 0.0..=f64::from(DRY_MULTIPLIER_MAX)),
        dry_base: fields.number("dry_base", 1.0..=f64::from(DRY_BASE_MAX)),
        dry_allowed_length: fields.integer_as("dry_allowed_length", 0..=tokens_max),
        dry_window: window.map(|window| match u32::try_from(window) {
            Err(_) => PenaltyWindow::All,
            Ok(0) => PenaltyWindow::Off,
            Ok(window) => PenaltyWindow::Last(window),
        }),
        dry_sequence_breakers: breakers(fields),
        xtc_probability: fields.number("xtc_probability", 0.0..=1.0),
        xtc_threshold: fields.number("xtc_threshold", 0.0..=1.0),
        ..GenerationOptions::default()
    }
}

fn breakers(fields: &mut Fields<'_>) -> Option<Vec<String>> {
    const NAME: &str = "dry_sequence_breakers";
    fields.record(
        NAME,
        || json!({"items": {"type": "string", "minLength": 1, "maxLength": DRY_BREAKER_BYTES_MAX}}),
    );
    let items = fields.array(NAME, DRY_BREAKERS_MAX)?;
    Some(short_strings(fields, NAME, items, DRY_BREAKER_BYTES_MAX))
}

/// Limit of `repeat_last_n`.
const WINDOW_MAX: i128 = u32::MAX as i128;

/// Parses the options that a request sets in `options`. Those about loading a model (`num_ctx`, `num_gpu` ...) are
/// settings of the operator here and are ignored, as are unknown options.
pub(crate) fn ollama_options(options: &mut Fields<'_>, vocab: usize) -> GenerationOptions {
    let mut given = llama_options(options, vocab);
    // -1 (unlimited) and -2 (until the context is full) both mean the limit of the context.
    if let Some(predict) = options.integer("num_predict", -2..=i128::from(u32::MAX)) {
        let tokens = usize::try_from(predict).ok().filter(|&predict| predict > 0);
        given.max_tokens = Some(tokens.map_or(TokenLimit::Context, TokenLimit::Tokens));
    }
    given
}

/// Parses the options that Ollama has from llama.cpp: those of OpenAI, `repeat_last_n`, and a negative `seed`.
pub(crate) fn llama_options(options: &mut Fields<'_>, vocab: usize) -> GenerationOptions {
    let mut given = generation_options(options, vocab, 1);
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
pub(crate) fn check_options(options: &mut Fields<'_>) {
    let params = ollama_options(options, u32::MAX as usize).resolve();
    check_min_tokens(options, &params);
}

#[cfg(test)]
mod tests {
    use crate::openai::completion_request;
    use crate::request_parser::tests::parsed_request;
    use generate::error::ApiError;
    use generate::request::GenerateRequest;
    use serde_json::{Value, json};

    fn parsed(over: &Value) -> Result<GenerateRequest, ApiError> {
        let mut body = json!({"messages": [{"role": "user", "content": "a"}]});
        for (name, value) in over.as_object().expect("fields") {
            body[name] = value.clone();
        }
        parsed_request(completion_request::parse_chat, body.to_string().as_bytes())
    }

    #[test]
    fn fields_are_parsed() {
        let request = parsed(&json!({
            "dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 64,
            "dry_sequence_breakers": ["\n", "###"], "xtc_probability": 0.5, "xtc_threshold": 0.2,
        }));
        let params = request.expect("a request").params;
        let s = &params.sampling;
        assert_eq!((s.dry_multiplier, s.dry_base), (0.8, 2.0));
        assert_eq!((s.dry_allowed_length, s.dry_window), (3, 64));
        assert_eq!((s.xtc_probability, s.xtc_threshold), (0.5, 0.2));
        assert_eq!(params.dry_sequence_breakers, ["\n", "###"]);
        let off = json!({"dry_multiplier": 0.8, "dry_penalty_last_n": 0});
        let off = parsed(&off).expect("a request").params;
        assert_eq!(off.sampling.dry_multiplier, 0.0);
    }

    #[test]
    fn invalid_field_is_named_with_its_bound() {
        for (over, want) in [
            (
                json!({"dry_multiplier": -1}),
                "dry_multiplier: must be a number from 0 to 100",
            ),
            (
                json!({"dry_multiplier": "x"}),
                "dry_multiplier: must be a number",
            ),
            (
                json!({"dry_base": 0.5}),
                "dry_base: must be a number from 1 to 16",
            ),
            (
                json!({"dry_base": 1e300}),
                "dry_base: must be a number from 1 to 16",
            ),
            (
                json!({"dry_allowed_length": -1}),
                "dry_allowed_length: must be an integer from 0 to 65536",
            ),
            (
                json!({"dry_penalty_last_n": 65_537}),
                "dry_penalty_last_n: must be an integer from -1 to 65536",
            ),
            (
                json!({"dry_sequence_breakers": "\n"}),
                "dry_sequence_breakers: ",
            ),
            (
                json!({"dry_sequence_breakers": vec!["a"; 33]}),
                "dry_sequence_breakers: ",
            ),
            (
                json!({"dry_sequence_breakers": ["a", ""]}),
                "dry_sequence_breakers[1]: must be a string of 1 to 40 bytes",
            ),
            (
                json!({"dry_sequence_breakers": ["a".repeat(41)]}),
                "dry_sequence_breakers[0]: must be a string of 1 to 40 bytes",
            ),
            (
                json!({"xtc_probability": 1.5}),
                "xtc_probability: must be a number from 0 to 1",
            ),
            (
                json!({"xtc_threshold": -0.5}),
                "xtc_threshold: must be a number from 0 to 1",
            ),
        ] {
            let error = parsed(&over).expect_err(want);
            assert!(error.message.starts_with(want), "{over}: {}", error.message);
        }
    }
}
