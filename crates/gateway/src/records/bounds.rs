//! Bounds of decoded values: a file that was changed by hand gives the engine no value that a request cannot have.

use super::json_record::DescriptionError;
use generate::infill_prompt::{INFILL_FILES_MAX, InfillPrompt};
use generate::request::{
    CACHE_SALT_BYTES_MAX, CONVERSATION_ID_BYTES_MAX, MESSAGES_MAX, MIXED_PARTS_MAX, MixedPart,
    Prompt, StreamOptions, WEBHOOK_URL_BYTES_MAX,
};
use generate::request_record::PromptRecord;
use generate::tools::TOOLS_MAX;
use generate::value_bounds::{
    IDS_MAX, InvalidValue, check_prompt, require, require_count, require_ids, require_range,
};
use serde_json::Value;
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

/// Requires a short text without control characters.
pub(crate) fn require_name(name: &str, text: &str) -> Result<(), InvalidValue> {
    require_count(name, text.len(), NAME_BYTES_MAX)?;
    require(!text.chars().any(char::is_control), || {
        format!("{name}: has a control character")
    })
}

/// Requires seconds of a wall time.
pub(crate) fn require_unix_s(name: &str, unix_s: i64) -> Result<(), InvalidValue> {
    require_range(name, unix_s, 0..=UNIX_S_MAX)
}

/// Requires microseconds of a wall time.
pub(crate) fn require_unix_us(name: &str, unix_us: u64) -> Result<(), InvalidValue> {
    let unix_s = i64::try_from(unix_us / 1_000_000).unwrap_or(i64::MAX);
    require_unix_s(name, unix_s)
}

/// Checks stream options of a stream with `n` choices per prompt.
pub(crate) fn check_options(options: &StreamOptions, n: usize) -> Result<(), InvalidValue> {
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
pub(crate) fn check_requested(prompts: &[Prompt]) -> Result<(), InvalidValue> {
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
fn check_single(prompt: &Prompt) -> Result<(), InvalidValue> {
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
pub(crate) fn check_prepared(
    prompts: &[PromptRecord],
    context_max: usize,
) -> Result<(), InvalidValue> {
    for (i, prompt) in prompts.iter().enumerate() {
        check_prompt(&format!("prompts[{i}]"), prompt, context_max)?;
    }
    Ok(())
}
