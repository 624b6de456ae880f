//! The engine's configuration and bounds, and the settings that may change while the engine runs.

use crate::states::{STATES_MIN, sequences_of, states_of};
use crate::{DRAFT_TOKENS_MAX, Speculation};
use model::{Dims, KEPT_MAX};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Choices per request.
pub const CHOICES_MAX: usize = 128;

/// Alternatives per token.
pub const TOP_LOGPROBS_MAX: u32 = 64;

/// Entries of a request's logit bias (8 bytes each).
pub const LOGIT_BIAS_MAX: usize = 4096;

/// Last tokens in which the DRY penalty looks for repetitions: 4 bytes of scratch for each.
pub const DRY_WINDOW_MAX: usize = 1 << 16;

/// Breakers of the DRY penalty with more than one token (about 100 bytes each).
pub const DRY_SEQUENCES_MAX: usize = 1 << 14;

/// Greatest factor of the DRY penalty.
pub const DRY_MULTIPLIER_MAX: f32 = 100.0;

/// Greatest growth of the DRY penalty with one repeated token.
pub const DRY_BASE_MAX: f32 = 16.0;

/// End-of-sequence ids per request (4 bytes each).
pub const EOS_IDS_MAX: usize = 256;

/// Longest sleep of the engine thread while all sequences are parked, and so the age of the stall times in
/// [`crate::Progress`]. Requests, cancels and returned credit wake the thread at once.
pub const WAIT_MAX: Duration = Duration::from_secs(1);

/// Settings of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Requests that were submitted but not started. More are rejected with `Rejected::Full`.
    pub inbox_max: usize,
    /// Tokens (4 bytes each) that queued requests may grow to, prompt and answer, counted for each
    /// choice. More are rejected with `Rejected::Full`, unless the queue is empty.
    pub queued_tokens_max: usize,
    /// Choices that were started and have not ended: running, parked or preempted.
    pub sequences_max: usize,
    /// Tokens (rows) of one step, decode and prefill together. The model's `rows_max`
    /// limits them too.
    pub step_tokens: usize,
    /// Accounts that are remembered beyond those with a live request; the least recently used account is
    /// evicted first, and starts level with the others at the next request.
    pub accounts_max: usize,
    /// After this time without service, an account's requests of a class count as one class
    /// more urgent, and so on; one `ageing` after the critical class they go before all.
    pub ageing: Duration,
    /// Target time of a step with decodes: beside them only as many prefill tokens are computed
    /// as are expected to fit, but at least 4, and a quarter of the decodes' time. At most one token in 150 waits
    /// longer, for a step that finishes many prompts. `None`: no target.
    pub step_target: Option<Duration>,
    /// A reader is slow when its request is parked for credit longer than this.
    pub slow_consumer: Duration,
    /// Whether full pages are kept after the end of their sequence, for prompts with the same prefix.
    pub prefix_cache: bool,
    /// Source of draft tokens. These change the speed, never the tokens.
    pub speculation: Speculation,
    /// Draft tokens per sequence and step; from 1 to [`DRAFT_TOKENS_MAX`].
    pub draft_tokens: usize,
    /// Bytes of encodings that are kept: rows of images, 4 bytes for each element. Those that sequences wait for may take one
    /// encoding more.
    pub encodings_bytes_max: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            inbox_max: 1024,
            queued_tokens_max: 16 << 20,
            sequences_max: 1024,
            step_tokens: 512,
            accounts_max: 1024,
            ageing: Duration::from_secs(10),
            step_target: Some(Duration::from_millis(100)),
            slow_consumer: Duration::from_secs(1),
            prefix_cache: true,
            speculation: Speculation::Off,
            draft_tokens: 8,
            encodings_bytes_max: 256 << 20,
        }
    }
}

impl EngineConfig {
    /// Live requests: those not started and, at worst, one per sequence.
    pub fn requests_max(&self) -> usize {
        self.inbox_max + self.sequences_max
    }

    /// Accounts in the fair-share table (192 bytes each).
    pub fn accounts_known(&self) -> usize {
        self.requests_max() + self.accounts_max
    }

    /// Draft tokens per sequence and step; 0 = speculation is off.
    pub(crate) fn draft_tokens_max(&self) -> usize {
        match self.speculation {
            Speculation::Off => 0,
            _ => self.draft_tokens.min(DRAFT_TOKENS_MAX),
        }
    }

    /// Returns the first bound that is too small.
    pub(crate) fn check(&self, dims: &Dims) -> Result<(), ConfigError> {
        at_least("inbox_max", self.inbox_max, 1)?;
        at_least("draft_tokens", self.draft_tokens, 1)?;
        at_least("sequences_max", self.sequences_max, 1)?;
        // One row for decode and one for prefill, or one starves the other.
        let rows = self.sequences_max.min(2);
        at_least("step_tokens", self.step_tokens, rows)?;
        at_least("rows_max", dims.rows_max, rows)?;
        at_least("logit_rows_max", dims.logit_rows_max, rows)?;
        at_least("vocab", dims.vocab, 1)?;
        at_least("context_max", dims.context_max, 2)?;
        at_least("page_tokens", dims.page_tokens, 1)?;
        at_least("pages", dims.pages, 1)
    }
}

impl EngineConfig {
    /// Returns the first bound that is too small for a model whose prompts are computed in one pass.
    pub(crate) fn check_whole_prompts(&self, dims: &Dims) -> Result<(), ConfigError> {
        at_least("rows_max of an encoder", dims.rows_max, dims.context_max)?;
        let pages = dims.context_max.div_ceil(dims.page_tokens);
        at_least("pages of an encoder", dims.pages, pages)
    }

    /// States of a model with recurrent layers that so many sequences need, those for checkpoints included.
    pub fn states_for(sequences: usize) -> usize {
        states_of(sequences)
    }

    /// Sequences that a model with `states` states may have in the engine at a time.
    pub fn sequences_for(states: usize) -> usize {
        sequences_of(states)
    }

    /// This configuration for a model with recurrent layers and `states` states: as many sequences as have states, as many
    /// draft tokens as a pass can write states after, and no draft model.
    pub(crate) fn for_states(self, states: usize) -> Result<Self, ConfigError> {
        at_least("states", states, STATES_MIN)?;
        Ok(Self {
            sequences_max: self.sequences_max.min(sequences_of(states)),
            speculation: match self.speculation {
                Speculation::Draft => Speculation::Off,
                other => other,
            },
            draft_tokens: self.draft_tokens.min(KEPT_MAX),
            ..self
        })
    }

    /// Returns an error for speculation by the MTP head of a model without one.
    pub(crate) fn check_mtp(&self, has_head: bool) -> Result<(), ConfigError> {
        match self.speculation {
            Speculation::Mtp => exactly("MTP heads of the model", usize::from(has_head), 1),
            _ => Ok(()),
        }
    }

    /// Returns an error for a draft model with recurrent layers.
    pub(crate) fn check_draft_states(&self, states: usize) -> Result<(), ConfigError> {
        exactly("states of the draft model", states, 0)
    }

    /// Returns the first bound that the draft model breaks; a draft model must be present exactly when the
    /// settings require one.
    pub(crate) fn check_draft(&self, dims: &Dims, draft: Option<&Dims>) -> Result<(), ConfigError> {
        let wanted = usize::from(self.speculation == Speculation::Draft);
        let models = usize::from(draft.is_some());
        exactly("draft models", models, wanted)?;
        let Some(draft) = draft else {
            return Ok(());
        };
        exactly("vocab of the draft model", draft.vocab, dims.vocab)?;
        at_least("pages of the draft model", draft.pages, 1)?;
        at_least("page_tokens of the draft model", draft.page_tokens, 1)?;
        at_least("rows_max of the draft model", draft.rows_max, 1)?;
        let rows = draft.logit_rows_max.min(draft.rows_max);
        at_least("logit_rows_max of the draft model", rows, 1)
    }
}

fn at_least(name: &'static str, value: usize, least: usize) -> Result<(), ConfigError> {
    within(name, value, least..=usize::MAX)
}

fn exactly(name: &'static str, value: usize, wanted: usize) -> Result<(), ConfigError> {
    within(name, value, wanted..=wanted)
}

fn within(
    name: &'static str,
    value: usize,
    bounds: RangeInclusive<usize>,
) -> Result<(), ConfigError> {
    let (&least, &most) = (bounds.start(), bounds.end());
    let error = ConfigError {
        name,
        value,
        least,
        most,
    };
    bounds.contains(&value).then_some(()).ok_or(error)
}

/// A bound of the configuration or of a model that is too small, or differs from another model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}; it must be {}{least}", if least == most { "" } else { "at least " })]
pub struct ConfigError {
    /// Name of the limit.
    pub name: &'static str,
    /// Configured value.
    pub value: usize,
    /// Least allowed value.
    pub least: usize,
    /// Greatest allowed value.
    pub most: usize,
}

/// The part of [`EngineConfig`] that does not size any buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// As [`EngineConfig::ageing`].
    pub ageing: Duration,
    /// As [`EngineConfig::step_target`].
    pub step_target: Option<Duration>,
    /// As [`EngineConfig::slow_consumer`].
    pub slow_consumer: Duration,
}

impl From<&EngineConfig> for Tuning {
    fn from(config: &EngineConfig) -> Self {
        Self {
            ageing: config.ageing,
            step_target: config.step_target,
            slow_consumer: config.slow_consumer,
        }
    }
}

/// Settings that any thread writes and the engine thread reads at the head of each step. The values are read
/// one by one: a step may see one of them changed and another not yet, which is harmless.
#[derive(Debug)]
pub(crate) struct LiveTuning {
    ageing_ns: AtomicU64,
    /// `u64::MAX`: no target.
    step_target_ns: AtomicU64,
    slow_consumer_ns: AtomicU64,
}

impl LiveTuning {
    pub(crate) fn new(tuning: Tuning) -> Self {
        let live = Self {
            ageing_ns: AtomicU64::new(0),
            step_target_ns: AtomicU64::new(0),
            slow_consumer_ns: AtomicU64::new(0),
        };
        live.set(tuning);
        live
    }

    pub(crate) fn set(&self, tuning: Tuning) {
        let target = tuning.step_target.map_or(u64::MAX, nanos);
        self.ageing_ns
            .store(nanos(tuning.ageing), Ordering::Relaxed);
        self.step_target_ns.store(target, Ordering::Relaxed);
        self.slow_consumer_ns
            .store(nanos(tuning.slow_consumer), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Tuning {
        let read = |ns: &AtomicU64| ns.load(Ordering::Relaxed);
        let target = read(&self.step_target_ns);
        Tuning {
            ageing: Duration::from_nanos(read(&self.ageing_ns)),
            step_target: (target < u64::MAX).then(|| Duration::from_nanos(target)),
            slow_consumer: Duration::from_nanos(read(&self.slow_consumer_ns)),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1)
}
