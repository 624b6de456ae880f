//! Bounds of decoded values: a file that was changed by hand gives the engine no value that a request cannot have.

use super::json_record::DescriptionError;
use generate::prompt_record::PromptRecord;
use generate::request::{
    CACHE_SALT_BYTES_MAX, CONVERSATION_ID_BYTES_MAX, GenerationParams, MESSAGES_MAX, Prompt,
    STOP_BYTES_MAX, STOP_IDS_MAX, STOPS_MAX, StreamOptions,
};
use generate::tools::TOOLS_MAX;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::time::Duration;
use text::ConstrainedTool;
use wire::openai::generation_fields::DEADLINE_MS_MAX;
use wire::tool_definitions::is_tool_name;

/// Token ids of a list, and of a prompt.
const IDS_MAX: usize = 1 << 20;
/// Token ids are below this number in every vocabulary.
const ID_LIMIT: u32 = 1 << 31;
/// Greatest value of a setting that counts tokens.
const TOKENS_MAX: u64 = 1 << 32;
/// Bytes of names and ids.
const NAME_BYTES_MAX: usize = 1 << 12;
/// Wall times are before the year 10000.
const UNIX_S_MAX: i64 = 253_402_300_799;

/// Whether a value is within bounds; the message begins with the field.
pub(super) fn require(
    holds: bool,
    message: impl FnOnce() -> String,
) -> Result<(), DescriptionError> {
    match holds {
        true => Ok(()),
        false => Err(DescriptionError::Invalid(message())),
    }
}

/// Requires a count of at most `most`.
pub(super) fn require_count(name: &str, count: usize, most: usize) -> Result<(), DescriptionError> {
    require(count <= most, || {
        format!("{name}: has {count}; at most {most}")
    })
}

/// Requires a number in a range; NaN is in none.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a range is written at each call"
)]
pub(super) fn require_range<T: PartialOrd + std::fmt::Display>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), DescriptionError> {
    require(range.contains(&value), || {
        format!(
            "{name}: is {value}; from {} to {}",
            range.start(),
            range.end()
        )
    })
}

/// Requires token ids, at most `most`.
pub(super) fn require_ids(name: &str, ids: &[u32], most: usize) -> Result<(), DescriptionError> {
    require_count(name, ids.len(), most)?;
    match ids.iter().find(|id| **id >= ID_LIMIT) {
        Some(id) => require(false, || format!("{name}: {id} is no token id")),
        None => Ok(()),
    }
}

/// Requires the number of tokens of a setting.
pub(super) fn require_tokens(name: &str, tokens: u64) -> Result<(), DescriptionError> {
    require_range(name, tokens, 0..=TOKENS_MAX)
}

/// Requires a short text without control characters.
pub(super) fn require_name(name: &str, text: &str) -> Result<(), DescriptionError> {
    require_count(name, text.len(), NAME_BYTES_MAX)?;
    require(!text.chars().any(char::is_control), || {
        format!("{name}: has a control character")
    })
}

/// Requires seconds of a wall time.
pub(super) fn require_unix_s(name: &str, unix_s: i64) -> Result<(), DescriptionError> {
    require_range(name, unix_s, 0..=UNIX_S_MAX)
}

/// Requires microseconds of a wall time.
pub(super) fn require_unix_us(name: &str, unix_us: u64) -> Result<(), DescriptionError> {
    let unix_s = i64::try_from(unix_us / 1_000_000).unwrap_or(i64::MAX);
    require_unix_s(name, unix_s)
}

/// Checks generation parameters.
pub(super) fn check_params(params: &GenerationParams) -> Result<(), DescriptionError> {
    check_sampling(&params.sampling)?;
    let (most, min) = (u32::MAX as usize, params.sampling.min_tokens as usize);
    require_count("params.max_tokens", params.max_tokens.unwrap_or(0), most)?;
    require(params.max_tokens.is_none_or(|max| min <= max), || {
        format!("params.sampling.min_tokens: is {min}; at most max_tokens")
    })?;
    require_count("params.stops", params.stops.len(), STOPS_MAX)?;
    for stop in &params.stops {
        require_range("params.stops", stop.len(), 1..=STOP_BYTES_MAX)?;
    }
    require_ids(
        "params.stop_token_ids",
        &params.stop_token_ids,
        STOP_IDS_MAX,
    )?;
    let budget = params.reasoning_budget.unwrap_or(0);
    require_tokens("params.reasoning_budget", budget)?;
    check_constrained_tools(&params.constrained_tools)
}

/// Checks sampling parameters. The engine checks the ranges, and the ids against the vocabulary, when a request is
/// submitted; JSON has no NaN.
fn check_sampling(sampling: &engine::SamplingParams) -> Result<(), DescriptionError> {
    for (name, value, range) in [
        ("temperature", sampling.temperature, 0.0..=100.0),
        ("top_p", sampling.top_p, 0.0..=1.0),
        ("min_p", sampling.min_p, 0.0..=1.0),
        ("typical_p", sampling.typical_p, 0.0..=1.0),
        (
            "repetition_penalty",
            sampling.repetition_penalty,
            0.0..=100.0,
        ),
        (
            "presence_penalty",
            sampling.presence_penalty,
            -100.0..=100.0,
        ),
        (
            "frequency_penalty",
            sampling.frequency_penalty,
            -100.0..=100.0,
        ),
    ] {
        require_range(name, value, range)?;
    }
    require_range("top_logprobs", sampling.top_logprobs, 0..=TOP_LOGPROBS)?;
    require_range("answered", sampling.answered, 0..=0)?;
    let (ids, biases): (Vec<u32>, Vec<f32>) = sampling.logit_bias.iter().copied().unzip();
    require_ids("logit_bias", &ids, generate::request::LOGIT_BIAS_MAX)?;
    biases
        .into_iter()
        .try_for_each(|bias| require_range("logit_bias", bias, -1e6..=1e6))
}

/// Alternatives per token.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const TOP_LOGPROBS: u32 = generate::request::TOP_LOGPROBS_MAX as u32;

fn check_constrained_tools(tools: &[ConstrainedTool]) -> Result<(), DescriptionError> {
    const NAME: &str = "params.constrained_tools";
    require_count(NAME, tools.len(), TOOLS_MAX)?;
    for tool in tools {
        require(is_tool_name(&tool.name), || {
            format!("{NAME}: {:?} is no name of a tool", tool.name)
        })?;
        require_range(NAME, tool.place, 0..=TOOLS_MAX - 1)?;
    }
    Ok(())
}

/// Checks stream options of a stream with `n` choices per prompt.
pub(super) fn check_options(options: &StreamOptions, n: usize) -> Result<(), DescriptionError> {
    let deadline = options.deadline.unwrap_or_default();
    require(deadline <= Duration::from_millis(DEADLINE_MS_MAX), || {
        format!("stream_options.deadline: is {deadline:?}; at most a day")
    })?;
    let salt = options.cache_salt.as_deref().unwrap_or(" ");
    require_range(
        "stream_options.cache_salt",
        salt.len(),
        1..=CACHE_SALT_BYTES_MAX,
    )?;
    let conversation = options.conversation_id.as_deref().unwrap_or_default();
    let name = "stream_options.conversation_id";
    require_count(name, conversation.len(), CONVERSATION_ID_BYTES_MAX)?;
    if let Some(best_of) = options.best_of {
        let name = "stream_options.best_of";
        let (returned, generated) = (best_of.returned, best_of.generated);
        require(generated == n && (1..=n).contains(&returned), || {
            format!("{name}: returns {returned} of {generated}; the request generates {n}")
        })?;
    }
    if let Some(fields) = options.repeated_fields.as_deref() {
        let object = format!("{{{fields}}}");
        let is_object = serde_json::from_str::<serde_json::Map<String, Value>>(&object).is_ok();
        require(is_object, || {
            "stream_options.repeated_fields: is not the inside of a JSON object".to_owned()
        })?;
    }
    Ok(())
}

/// Checks the prompts of a request.
pub(super) fn check_requested(prompts: &[Prompt]) -> Result<(), DescriptionError> {
    for prompt in prompts {
        match prompt {
            Prompt::Continued { context, then } => {
                require_ids("prompts.context", context, IDS_MAX)?;
                check_single(then)?;
            }
            other => check_single(other)?,
        }
    }
    Ok(())
}

/// Checks a prompt that follows no earlier ids.
fn check_single(prompt: &Prompt) -> Result<(), DescriptionError> {
    match prompt {
        Prompt::Conversation {
            messages, tools, ..
        } => {
            require_count("prompts.messages", messages.len(), MESSAGES_MAX)?;
            require_count("prompts.tools", tools.len(), TOOLS_MAX)
        }
        Prompt::Continued { .. } => require(false, || {
            "prompts.continued: continues a prompt that continues another one".to_owned()
        }),
        Prompt::Ids(ids) => require_ids("prompts.ids", ids, IDS_MAX),
        Prompt::Pieces(_) | Prompt::Text(_) => Ok(()),
    }
}

/// Checks prepared prompts for a context of this length.
pub(super) fn check_prepared(
    prompts: &[PromptRecord],
    context_max: usize,
) -> Result<(), DescriptionError> {
    for (i, prompt) in prompts.iter().enumerate() {
        let ids = prompt.ids.len();
        require((1..context_max).contains(&ids), || {
            format!("prompts[{i}].ids: has {ids}; at least 1, and fewer than {context_max}")
        })?;
        require_ids("prompts.ids", &prompt.ids, IDS_MAX)?;
        require_count("prompts.tools", prompt.tools.len(), TOOLS_MAX)?;
    }
    Ok(())
}
