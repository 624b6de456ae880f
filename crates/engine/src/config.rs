//! The engine's bounds. Each has one name, here.

use model::Dims;
use std::time::Duration;

/// Answers one request may have.
pub const CHOICES_MAX: usize = 128;

/// Alternatives per token a request may ask for.
pub const TOP_LOGPROBS_MAX: u32 = 64;

/// Entries of a request's logit bias (8 bytes each).
pub const LOGIT_BIAS_MAX: usize = 4096;

/// End-of-sequence ids a request may name (4 bytes each).
pub const EOS_IDS_MAX: usize = 256;

/// How long the engine thread sleeps at most while there are sequences, all of them standing still: so
/// old are the figures of how long readers kept them waiting. News wakes it at once.
pub const LOOK_EACH: Duration = Duration::from_secs(1);

/// What the operator may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Requests that were submitted but not started. More are refused with `Rejected::Full`.
    pub inbox_max: usize,
    /// Tokens (4 bytes each) that requests not yet started may grow to, prompt and answer, each
    /// choice for itself. More are refused with `Rejected::Full`, unless nothing is queued.
    pub queued_tokens_max: usize,
    /// Choices that were started and have not ended: running, parked or preempted.
    pub sequences_max: usize,
    /// Rows (tokens) of one step, decodes and prefill together. The model's own `rows_max`
    /// holds beside it.
    pub step_tokens: usize,
    /// Accounts that are remembered beyond those with a request alive; the one out of use longest
    /// is forgotten first. Its next request starts level with the others'.
    pub accounts_max: usize,
    /// After this time without being served, an account's requests of a class count as one class
    /// more urgent, and so on; one `ageing` after they counted as critical they go before all.
    pub ageing: Duration,
    /// How long a step with decodes may take: beside them only as many prefill rows are computed
    /// as are expected to fit, but always 8, and a quarter of what the decodes take. `None`: as many
    /// as there is room for.
    pub step_target: Option<Duration>,
    /// Parked for credit longer than this, a reader is called slow.
    pub slow_consumer: Duration,
    /// Whether full pages are kept after their sequence ended, for prompts that begin alike.
    pub prefix_cache: bool,
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
        }
    }
}

impl EngineConfig {
    /// Requests alive at one time: those not started and, at worst, one per sequence.
    pub fn requests_max(&self) -> usize {
        self.inbox_max + self.sequences_max
    }

    /// Accounts the engine knows at one time (192 bytes each).
    pub fn accounts_known(&self) -> usize {
        self.requests_max() + self.accounts_max
    }

    /// Names the first bound that makes no engine.
    pub(crate) fn check(&self, dims: &Dims) -> Result<(), ConfigError> {
        let at_least = |name, value: usize, least: usize| match value < least {
            true => Err(ConfigError { name, value, least }),
            false => Ok(()),
        };
        at_least("inbox_max", self.inbox_max, 1)?;
        at_least("sequences_max", self.sequences_max, 1)?;
        // One row for those who run and one for those who start, or one kind starves the other.
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

/// A bound of the configuration or of the model is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The bound.
    pub name: &'static str,
    /// What it is.
    pub value: usize,
    /// What it must be at least.
    pub least: usize,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, value, least } = self;
        write!(f, "{name} is {value}; it must be at least {least}")
    }
}

impl std::error::Error for ConfigError {}
