//! Requests for an engine of another process.
//!
//! A gateway has a model's tokenizer and template, and no weights. What it submits to its engine handle is sent to the
//! engine of another process as a [`RemoteRequest`]: the prepared prompt, the parameters, and what else decides the
//! tokens. The engine's side restores the prompt, compiles the constraints again, and continues the tokens so far exactly
//! as a recovered stream continues ([`Submission::resume`](crate::submit::Submission::resume)). So a request is moved to
//! another engine with the same record and the tokens so far.

mod embedding;
mod resumption;
#[cfg(test)]
mod tests;

pub use self::embedding::RecordPooling;
pub use self::resumption::{ChoiceSoFar, Resumption};

use crate::error::ApiError;
use crate::images::ImageRecord;
use crate::output::parser_config::ParseOptions;
use crate::request::{CHOICES_MAX, GenerationParams};
use crate::request_record::{PromptRecord, UpdateFields, verbatim};
use crate::value_bounds::{
    InvalidValue, check_params, check_prompt, check_update, require_range, require_tokens,
};
use engine::{
    Account, CacheSalt, Clocks, MEDIA_INPUTS_MAX, Policy, Priority, RequestUpdate, Terms,
};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Bytes of an encoded request.
pub const REMOTE_REQUEST_BYTES_MAX: usize = 16 << 20;

/// One request to an engine of another process: a prompt with all choices, or some of them. Unknown fields are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteRequest {
    /// The prompt, without the tokens so far.
    pub prompt: PromptRecord,
    /// How answers are generated.
    #[serde(with = "verbatim::value")]
    pub params: GenerationParams,
    /// Number of choices.
    pub n: usize,
    /// Number of the first choice among the choices of the prompt.
    #[serde(default)]
    pub first_choice: u32,
    /// Tokens that prompt and answer may have together.
    pub context_max: usize,
    /// Seed of the sampler.
    pub seed: u64,
    /// Tokens that a choice may be ahead of the reader; 0 = no limit.
    pub credit_window: u64,
    /// Priority, account, time limits, salt.
    pub terms: RecordTerms,
    /// Sampling parameters in effect that differ from `params`; nothing to inject.
    #[serde(default, with = "UpdateFields")]
    pub in_effect: RequestUpdate,
    /// Pooling of the embedding that is wanted instead of tokens. An engine that does not know this field would compute
    /// tokens: such a request goes only to engines that announce the length of their vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<RecordPooling>,
    /// Images of the prompt, by number; the files come before the request. Such a request goes only to engines that announce the
    /// tower that the rows are of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRecord>,
}

impl RemoteRequest {
    /// JSON.
    ///
    /// # Errors
    /// The request is longer than [`REMOTE_REQUEST_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, ApiError> {
        let json = serde_json::to_vec(self).map_err(|why| {
            ApiError::ours(
                "internal_error",
                format!("the request is not encoded: {why}"),
            )
        })?;
        if json.len() > REMOTE_REQUEST_BYTES_MAX {
            let message = format!(
                "prompt: the prepared request has {} bytes; at most {REMOTE_REQUEST_BYTES_MAX} are taken",
                json.len()
            );
            return Err(ApiError::field("prompt", "too_long", message));
        }
        Ok(json)
    }

    /// The request of these bytes. Every value is one that a request can have.
    ///
    /// # Errors
    /// The bytes are too many or no JSON of a request, or a value is out of bounds; the message names field and bound.
    pub fn decode(json: &[u8]) -> Result<Self, InvalidValue> {
        if json.len() > REMOTE_REQUEST_BYTES_MAX {
            return Err(InvalidValue(format!(
                "request: has {} bytes; at most {REMOTE_REQUEST_BYTES_MAX}",
                json.len()
            )));
        }
        let request: Self =
            serde_json::from_slice(json).map_err(|why| InvalidValue(format!("request: {why}")))?;
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), InvalidValue> {
        require_range("n", self.n, 1..=CHOICES_MAX)?;
        let last_first = CHOICES_MAX - self.n;
        require_range("first_choice", self.first_choice as usize, 0..=last_first)?;
        require_tokens("context_max", self.context_max as u64)?;
        require_tokens("credit_window", self.credit_window)?;
        check_prompt("prompt", &self.prompt, self.context_max)?;
        self.check_images()?;
        check_params(&self.params)?;
        if self.embedding.is_some() {
            require_range("images", self.images.len(), 0..=0)?;
            require_range("n", self.n, 1..=1)?;
            require_range("first_choice", self.first_choice as usize, 0..=0)?;
        }
        check_update("in_effect", &self.in_effect, 0)
    }

    fn check_images(&self) -> Result<(), InvalidValue> {
        let runs = &self.prompt.images;
        require_range("prompt.images", runs.len(), 0..=MEDIA_INPUTS_MAX)?;
        require_range("images", self.images.len(), 0..=runs.len())?;
        for run in runs {
            let last = self.images.len().saturating_sub(1);
            require_range("prompt.images.image", run.image, 0..=last)?;
        }
        if runs.is_empty() == self.images.is_empty() {
            return Ok(());
        }
        let why = "images: the prompt has rows of images, and the request none";
        Err(InvalidValue(why.to_owned()))
    }

    /// How the answer is parsed.
    fn parse_options(&self) -> ParseOptions {
        ParseOptions {
            tool_calling: self.params.tool_calling,
            structured_output: self.params.response_format.is_some(),
        }
    }
}

/// One update with the effect of all, without the injected tokens.
pub(crate) fn merged(updates: &[RequestUpdate]) -> RequestUpdate {
    let mut all = RequestUpdate::default();
    updates.iter().for_each(|update| all.override_with(update));
    all
}

/// Terms of service without points in time. By default those of [`Terms`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordTerms {
    priority: crate::request::Priority,
    account: u64,
    weight: u32,
    /// Hexadecimal digits; empty: none.
    salt: String,
    policy: RecordPolicy,
    queue_ms: Option<u64>,
    first_token_ms: Option<u64>,
    idle_ms: Option<u64>,
    total_ms: Option<u64>,
    reader_ms: Option<u64>,
}

/// [`Policy`] by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordPolicy {
    #[default]
    Cancel,
    Detach,
    Keep,
}

impl RecordTerms {
    pub(crate) fn new(terms: &Terms) -> Self {
        let Clocks {
            queue,
            first_token,
            idle,
            total,
            reader,
        } = terms.clocks;
        let priorities = crate::request::Priority::ALL;
        Self {
            priority: priorities[terms.priority as usize],
            account: terms.account.id,
            weight: terms.account.weight,
            salt: match terms.salt {
                CacheSalt::NONE => String::new(),
                CacheSalt(salt) => format!("{salt:x}"),
            },
            policy: match terms.policy {
                Policy::Cancel => RecordPolicy::Cancel,
                Policy::Detach => RecordPolicy::Detach,
                Policy::Keep => RecordPolicy::Keep,
            },
            queue_ms: queue.map(millis),
            first_token_ms: first_token.map(millis),
            idle_ms: idle.map(millis),
            total_ms: total.map(millis),
            reader_ms: reader.map(millis),
        }
    }

    /// The terms of a request that arrived at this time.
    fn terms(&self, since: Option<Instant>) -> Terms {
        let clock = |ms: Option<u64>| ms.map(Duration::from_millis);
        Terms {
            priority: Priority::from(self.priority),
            account: Account {
                id: self.account,
                weight: self.weight,
            },
            clocks: Clocks {
                queue: clock(self.queue_ms),
                first_token: clock(self.first_token_ms),
                idle: clock(self.idle_ms),
                total: clock(self.total_ms),
                reader: clock(self.reader_ms),
            },
            // A salt that is no number is shared by its equals only.
            salt: match u128::from_str_radix(&self.salt, 16) {
                Ok(salt) => CacheSalt(salt),
                Err(_) if self.salt.is_empty() => CacheSalt::NONE,
                Err(_) => CacheSalt(u128::MAX),
            },
            policy: match self.policy {
                RecordPolicy::Cancel => Policy::Cancel,
                RecordPolicy::Detach => Policy::Detach,
                RecordPolicy::Keep => Policy::Keep,
            },
            since,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
