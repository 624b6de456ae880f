//! The engine's bounds. Each has one name, here.

use crate::{DRAFT_TOKENS_MAX, Speculation};
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
pub const WAIT_MAX: Duration = Duration::from_secs(1);

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
    /// Where guesses at what comes next come from. They change how fast tokens come, never which.
    pub speculation: Speculation,
    /// Tokens guessed per sequence and step at most; from 1 to [`DRAFT_TOKENS_MAX`].
    pub draft_tokens: usize,
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

    /// Tokens that are guessed per sequence and step at most; 0 = speculation is off.
    pub(crate) fn draft_tokens_max(&self) -> usize {
        match self.speculation {
            Speculation::Off => 0,
            _ => self.draft_tokens.min(DRAFT_TOKENS_MAX),
        }
    }

    /// Names the first bound that makes no engine.
    pub(crate) fn check(&self, dims: &Dims) -> Result<(), ConfigError> {
        at_least("inbox_max", self.inbox_max, 1)?;
        at_least("draft_tokens", self.draft_tokens, 1)?;
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

impl EngineConfig {
    /// Names what keeps the draft model from guessing, or from being there at all.
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
    let most = usize::MAX;
    match value < least {
        true => Err(ConfigError {
            name,
            value,
            least,
            most,
        }),
        false => Ok(()),
    }
}

fn exactly(name: &'static str, value: usize, wanted: usize) -> Result<(), ConfigError> {
    let (least, most) = (wanted, wanted);
    match value == wanted {
        true => Ok(()),
        false => Err(ConfigError {
            name,
            value,
            least,
            most,
        }),
    }
}

/// A bound of the configuration or of a model is too small, or not what another one wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The bound.
    pub name: &'static str,
    /// What it is.
    pub value: usize,
    /// What it must be at least.
    pub least: usize,
    /// What it must be at most.
    pub most: usize,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            name,
            value,
            least,
            most,
        } = self;
        match least == most {
            true => write!(f, "{name} is {value}; it must be {least}"),
            false => write!(f, "{name} is {value}; it must be at least {least}"),
        }
    }
}

impl std::error::Error for ConfigError {}
