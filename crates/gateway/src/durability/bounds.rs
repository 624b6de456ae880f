//! Bounds of decoded values: a file that was changed by hand gives the engine no value that a request cannot have.

use super::json_record::DescriptionError;
use engine::RequestUpdate;
use generate::infill_prompt::{INFILL_FILES_MAX, InfillPrompt};
use generate::prompt_record::PromptRecord;
use generate::request::{
    CACHE_SALT_BYTES_MAX, CONVERSATION_ID_BYTES_MAX, GenerationParams, MESSAGES_MAX,
    MIXED_PARTS_MAX, MixedPart, Prompt, StreamOptions, WEBHOOK_URL_BYTES_MAX,
};
use generate::tools::TOOLS_MAX;
use generate::value_bounds::{self, IDS_MAX, InvalidValue};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::time::Duration;
use wire::shared::generation_fields::DEADLINE_MS_MAX;

/// Bytes of names and ids.
const NAME_BYTES_MAX: usize = 1 << 12;
/// Wall times are before the year 10000.
const UNIX_S_MAX: i64 = 253_402_300_799;

impl From<InvalidValue> for DescriptionError {
    fn from(invalid: InvalidValue) -> Self {
        Self::Invalid(invalid.0)
    }
}

/// Whether a value is within bounds; the message begins with the field.
pub(super) fn require(
    holds: bool,
    message: impl FnOnce() -> String,
) -> Result<(), DescriptionError> {
    Ok(value_bounds::require(holds, message)?)
}

/// Requires a count of at most `most`.
pub(super) fn require_count(name: &str, count: usize, most: usize) -> Result<(), DescriptionError> {
    Ok(value_bounds::require_count(name, count, most)?)
}

/// Requires a number in a range; NaN is in none.
pub(super) fn require_range<T: PartialOrd + std::fmt::Display>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), DescriptionError> {
    Ok(value_bounds::require_range(name, value, range)?)
}

/// Requires token ids, at most `most`.
pub(super) fn require_ids(name: &str, ids: &[u32], most: usize) -> Result<(), DescriptionError> {
    Ok(value_bounds::require_ids(name, ids, most)?)
}

/// Requires the number of tokens of a setting.
pub(super) fn require_tokens(name: &str, tokens: u64) -> Result<(), DescriptionError> {
    Ok(value_bounds::require_tokens(name, tokens)?)
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
    Ok(value_bounds::check_params(params)?)
}

/// Checks a control update with at most `inject_max` injected tokens.
pub(super) fn check_update(
    name: &str,
    update: &RequestUpdate,
    inject_max: usize,
) -> Result<(), DescriptionError> {
    Ok(value_bounds::check_update(name, update, inject_max)?)
}

/// Checks stream options of a stream with `n` choices per prompt.
pub(super) fn check_options(options: &StreamOptions, n: usize) -> Result<(), DescriptionError> {
    let deadline = options.deadline.unwrap_or_default();
    require(deadline <= Duration::from_millis(DEADLINE_MS_MAX), || {
        let ms = deadline.as_millis();
        format!("stream_options.deadline: is {ms} ms; at most {DEADLINE_MS_MAX}")
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
    let webhook = options.webhook.as_deref().unwrap_or_default();
    require_count(
        "stream_options.webhook",
        webhook.len(),
        WEBHOOK_URL_BYTES_MAX,
    )?;
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
        Prompt::Mixed(parts) => {
            require_count("prompts.mixed", parts.len(), MIXED_PARTS_MAX)?;
            parts.iter().try_for_each(|part| match part {
                MixedPart::Ids(ids) => require_ids("prompts.mixed.ids", ids, IDS_MAX),
                MixedPart::Text(_) => Ok(()),
            })
        }
        Prompt::Infill(InfillPrompt { repository, .. }) => {
            let files = repository.as_ref().map_or(0, |shown| shown.files.len());
            require_count("prompts.infill.files", files, INFILL_FILES_MAX)
        }
        Prompt::Pieces(_) | Prompt::Text(_) => Ok(()),
    }
}

/// Checks prepared prompts for a context of this length.
pub(super) fn check_prepared(
    prompts: &[PromptRecord],
    context_max: usize,
) -> Result<(), DescriptionError> {
    for (i, prompt) in prompts.iter().enumerate() {
        value_bounds::check_prompt(&format!("prompts[{i}]"), prompt, context_max)?;
    }
    Ok(())
}
