//! Bounds of decoded values: a record that was changed by hand, or that another process sent, gives the engine no value
//! that a request cannot have.

use crate::model_handle::{ADAPTER_NAME_BYTES_MAX, AdapterUse};
use crate::request::{
    DRY_BREAKER_BYTES_MAX, DRY_BREAKERS_MAX, GenerationParams, LOGIT_BIAS_MAX, STOP_BYTES_MAX,
    STOP_IDS_MAX, STOPS_MAX,
};
use crate::request_record::PromptRecord;
use crate::tools::{TOOLS_MAX, is_tool_name};
use engine::{
    ADAPTER_SCALE_MAX, ADAPTERS_MAX, DRY_BASE_MAX, DRY_MULTIPLIER_MAX, DRY_WINDOW_MAX,
    RequestUpdate, SamplingParams, TOP_LOGPROBS_MAX,
};
use std::fmt::Display;
use std::ops::RangeInclusive;
use text::ConstrainedTool;

/// Token ids of a list, and of a prompt.
pub const IDS_MAX: usize = 1 << 20;
/// Token ids are below this number in every vocabulary.
const ID_LIMIT: u32 = 1 << 31;
/// Greatest value of a setting that counts tokens.
const TOKENS_MAX: u64 = 1 << 32;

/// A value that breaks a bound; the message begins with the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(pub String);

/// Requires a condition; the message begins with the field.
///
/// # Errors
/// The condition does not hold.
pub fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), InvalidValue> {
    if holds {
        Ok(())
    } else {
        Err(InvalidValue(message()))
    }
}

/// Requires a count of at most `most`.
///
/// # Errors
/// The count is greater.
pub fn require_count(name: &str, count: usize, most: usize) -> Result<(), InvalidValue> {
    require(count <= most, || {
        format!("{name}: has {count}; at most {most}")
    })
}

/// Requires a number in a range; NaN is in none.
///
/// # Errors
/// The number is outside.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a range is written at each call"
)]
pub fn require_range<T: PartialOrd + Display>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), InvalidValue> {
    require(range.contains(&value), || {
        format!(
            "{name}: is {value}; from {} to {}",
            range.start(),
            range.end()
        )
    })
}

/// Requires token ids, at most `most`.
///
/// # Errors
/// There are more, or one is no token id of any vocabulary.
pub fn require_ids(name: &str, ids: &[u32], most: usize) -> Result<(), InvalidValue> {
    require_count(name, ids.len(), most)?;
    match ids.iter().find(|id| **id >= ID_LIMIT) {
        Some(id) => require(false, || format!("{name}: {id} is no token id")),
        None => Ok(()),
    }
}

/// Requires the number of tokens of a setting.
///
/// # Errors
/// The number is too great.
pub fn require_tokens(name: &str, tokens: u64) -> Result<(), InvalidValue> {
    require_range(name, tokens, 0..=TOKENS_MAX)
}

/// Checks generation parameters.
///
/// # Errors
/// A value that a request cannot have.
pub fn check_params(params: &GenerationParams) -> Result<(), InvalidValue> {
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
    let breakers = &params.dry_sequence_breakers;
    require_count(
        "params.dry_sequence_breakers",
        breakers.len(),
        DRY_BREAKERS_MAX,
    )?;
    for breaker in breakers {
        let range = 1..=DRY_BREAKER_BYTES_MAX;
        require_range("params.dry_sequence_breakers", breaker.len(), range)?;
    }
    require_ids(
        "params.stop_token_ids",
        &params.stop_token_ids,
        STOP_IDS_MAX,
    )?;
    check_adapters(&params.lora)?;
    let budget = params.reasoning_budget.unwrap_or(0);
    require_tokens("params.reasoning_budget", budget)?;
    check_constrained_tools(&params.constrained_tools)
}

/// Checks adapters. Whether the model has them is checked when the request is submitted.
fn check_adapters(uses: &[AdapterUse]) -> Result<(), InvalidValue> {
    require_count("params.lora", uses.len(), ADAPTERS_MAX)?;
    for used in uses {
        require_range("params.lora", used.name.len(), 1..=ADAPTER_NAME_BYTES_MAX)?;
        let range = -ADAPTER_SCALE_MAX..=ADAPTER_SCALE_MAX;
        require_range("params.lora", used.scale, range)?;
    }
    Ok(())
}

/// Checks sampling parameters. The engine checks the ranges, and the ids against the vocabulary, when a request is
/// submitted; JSON has no NaN.
fn check_sampling(sampling: &SamplingParams) -> Result<(), InvalidValue> {
    for (name, value, range) in [
        ("temperature", sampling.temperature, 0.0..=100.0),
        ("top_p", sampling.top_p, 0.0..=1.0),
        ("min_p", sampling.min_p, 0.0..=1.0),
        ("typical_p", sampling.typical_p, 0.0..=1.0),
        (
            "dry_multiplier",
            sampling.dry_multiplier,
            0.0..=DRY_MULTIPLIER_MAX,
        ),
        ("dry_base", sampling.dry_base, 1.0..=DRY_BASE_MAX),
        ("xtc_probability", sampling.xtc_probability, 0.0..=1.0),
        ("xtc_threshold", sampling.xtc_threshold, 0.0..=1.0),
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
    for (name, tokens) in [
        ("dry_allowed_length", sampling.dry_allowed_length),
        ("dry_window", sampling.dry_window),
    ] {
        require_count(name, tokens as usize, DRY_WINDOW_MAX)?;
    }
    require_range("top_logprobs", sampling.top_logprobs, 0..=TOP_LOGPROBS_MAX)?;
    require_range("answered", sampling.answered, 0..=0)?;
    let (ids, biases): (Vec<u32>, Vec<f32>) = sampling.logit_bias.iter().copied().unzip();
    require_ids("logit_bias", &ids, LOGIT_BIAS_MAX)?;
    biases
        .into_iter()
        .try_for_each(|bias| require_range("logit_bias", bias, -1e6..=1e6))
}

fn check_constrained_tools(tools: &[ConstrainedTool]) -> Result<(), InvalidValue> {
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

/// Checks a control update with at most `inject_max` injected tokens.
///
/// # Errors
/// A value that an update cannot have.
pub fn check_update(
    name: &str,
    update: &RequestUpdate,
    inject_max: usize,
) -> Result<(), InvalidValue> {
    for (value, range) in [
        (update.temperature, 0.0..=100.0),
        (update.top_p, 0.0..=1.0),
        (update.min_p, 0.0..=1.0),
        (update.repetition_penalty, 0.0..=100.0),
        (update.presence_penalty, -100.0..=100.0),
        (update.frequency_penalty, -100.0..=100.0),
    ] {
        value.map_or(Ok(()), |value| require_range(name, value, range))?;
    }
    require_ids(name, &update.inject, inject_max)
}

/// Checks a prepared prompt for a context of this length. Whether the model needs a free position is checked by its engine.
///
/// # Errors
/// A value that a prompt cannot have.
pub fn check_prompt(
    name: &str,
    prompt: &PromptRecord,
    context_max: usize,
) -> Result<(), InvalidValue> {
    let ids = prompt.ids.len();
    require((1..=context_max).contains(&ids), || {
        format!("{name}.ids: has {ids}; at least 1, at most {context_max}")
    })?;
    require_ids("prompts.ids", &prompt.ids, IDS_MAX)?;
    require_count("prompts.tools", prompt.tools.len(), TOOLS_MAX)
}
