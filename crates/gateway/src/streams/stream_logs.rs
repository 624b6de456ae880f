//! The logs of a durable stream, as the recorder reads them, and the buffers in which tokens of one choice are collected
//! for a record.

use engine::{Phase, Progress, Token, TopLogprob};
use generate::stream_source::{EndedTime, StartedGeneration};
use journal::{Alternative, Alternatives, Tokens};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{End, Gate, Tap};

/// Gates and side logs of all choices, and the engine's counters.
pub(crate) struct StreamLogs {
    choices: Box<[GatedChoice]>,
    requests: Box<[Arc<Progress>]>,
    /// When the engine's timestamps begin.
    epoch: Instant,
    has_logprobs: bool,
    top_n: usize,
    ended_time: Arc<EndedTime>,
}

struct GatedChoice {
    gate: Gate<Token>,
    top: Option<Tap<TopLogprob>>,
}

/// How far the writer of a choice's log is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WrittenChoice {
    pub(crate) tokens: u64,
    pub(crate) end: Option<End>,
}

/// The start of the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartedAt {
    pub(crate) cached_tokens: u64,
    pub(crate) at: Instant,
}

impl StreamLogs {
    /// The logs of a generation whose token logs are gated; `None` if one of them is not. Log-probabilities and `top_n`
    /// alternatives for each token are recorded where the answer has them.
    pub(crate) fn new(
        (generation, ended_time): (&StartedGeneration, &Arc<EndedTime>),
        has_logprobs: bool,
        top_n: usize,
    ) -> Option<Self> {
        let choices = generation.choices.iter().map(|choice| {
            Some(GatedChoice {
                gate: choice.gate.clone()?,
                top: choice.top.clone(),
            })
        });
        let requests = generation.requests.iter();
        Some(Self {
            choices: choices.collect::<Option<_>>()?,
            requests: requests.map(|r| Arc::clone(&r.progress)).collect(),
            epoch: generation.engine.epoch(),
            has_logprobs,
            top_n,
            ended_time: Arc::clone(ended_time),
        })
    }

    /// When the stream ended, as its readers see it.
    pub(crate) fn ended_time(&self) -> &EndedTime {
        &self.ended_time
    }

    /// Shows everything from now on at once.
    pub(crate) fn open_gates(&self) {
        self.choices.iter().for_each(|choice| choice.gate.open());
    }

    /// Shows the tokens of a choice before `tokens`.
    pub(crate) fn show_tokens(&self, choice: usize, tokens: u64) {
        if let Some(choice) = self.choices.get(choice) {
            choice.gate.show(tokens);
        }
    }

    /// Shows all tokens and the end of a choice.
    pub(crate) fn show_end(&self, choice: usize) {
        if let Some(choice) = self.choices.get(choice) {
            choice.gate.show_end();
        }
    }

    /// Loads the lines of the first choice's token at `from` into the cache.
    pub(crate) fn touch(&self, from: u64) -> usize {
        let first = self.choices.first();
        first.map_or(0, |choice| choice.gate.copy_written(from, &mut [NO_TOKEN]))
    }

    /// Tokens that readers do not see yet.
    pub(crate) fn hidden_tokens(&self) -> u64 {
        let hidden = |c: &GatedChoice| c.gate.written_len().saturating_sub(c.gate.shown_len());
        self.choices.iter().map(hidden).sum()
    }

    /// Whether all choices have ended, also if readers do not see it yet.
    pub(crate) fn have_ended(&self) -> bool {
        let mut choices = self.choices.iter();
        choices.all(|choice| choice.gate.written_end().is_some())
    }

    /// How far all choices are written.
    pub(crate) fn read_written(&self, written: &mut Vec<WrittenChoice>) {
        written.clear();
        written.extend(self.choices.iter().map(|choice| {
            // The end first: a log that has ended grows no more.
            let end = choice.gate.written_end();
            let tokens = choice.gate.written_len();
            WrittenChoice { tokens, end }
        }));
    }

    /// Control updates that all requests have applied which have not ended. A request that has not begun yet applies
    /// updates later than the others.
    pub(crate) fn updates_applied(&self) -> u64 {
        let open = self
            .requests
            .iter()
            .filter(|progress| progress.phase() != Phase::Ended);
        let applied = open.map(|progress| progress.updates_applied());
        applied.min().unwrap_or(u64::MAX)
    }

    /// Updates that requests have applied, all requests together. A number below [`Self::begun_count`] means that one is
    /// being applied.
    pub(crate) fn applied_count(&self) -> u64 {
        let requests = self.requests.iter();
        requests.map(|progress| progress.updates_applied()).sum()
    }

    /// Updates that requests have begun to apply, all requests together.
    pub(crate) fn begun_count(&self) -> u64 {
        let requests = self.requests.iter();
        requests.map(|progress| progress.updates_begun()).sum()
    }

    /// The start, once a request has begun with its prompt.
    pub(crate) fn started_at(&self) -> Option<StartedAt> {
        let stamps = self.requests.iter().map(|progress| progress.started_ns());
        let first = stamps.filter(|&ns| ns > 0).min()?;
        let cached = self
            .requests
            .iter()
            .map(|progress| progress.cached_tokens());
        Some(StartedAt {
            cached_tokens: cached.sum(),
            at: self.epoch + Duration::from_nanos(first),
        })
    }

    /// Copies tokens of a choice from `from` on, before `end`, as many as the buffers hold.
    pub(crate) fn copy_tokens(
        &self,
        choice: usize,
        from: u64,
        end: u64,
        buffers: &mut TokenBuffers,
    ) {
        buffers.clear();
        let Some(choice) = self.choices.get(choice) else {
            return;
        };
        let count = buffers.copy_tokens(from, end, self.has_logprobs, |buffer| {
            choice.gate.copy_written(from, buffer)
        });
        if let Some(top) = choice.top.as_ref().filter(|_| self.top_n > 0) {
            let first = from * self.top_n as u64;
            buffers.copy_alternatives(count, self.top_n, |at, buffer| {
                top.copy_items(first + at as u64, buffer)
            });
        }
    }
}

/// Tokens that are copied from a log at a time.
const TOKENS_MAX: usize = 1024;

/// Alternatives that are copied from a log at a time.
const ALTERNATIVES_MAX: usize = 256;

/// Fills a buffer.
pub(crate) const NO_TOKEN: Token = Token {
    id: 0,
    logprob: 0.0,
};

const NO_ALTERNATIVE: TopLogprob = TopLogprob {
    id: 0,
    logprob: 0.0,
};

/// Tokens of one choice in the journal's form.
pub(crate) struct TokenBuffers {
    tokens: Box<[Token]>,    // (TOKENS_MAX)
    top: Box<[TopLogprob]>,  // (ALTERNATIVES_MAX)
    ids: Vec<u32>,           // 0 ..= TOKENS_MAX
    logprobs: Vec<f32>,      // as many as `ids`, or none
    counts: Vec<u8>,         // as many as `ids`, or none
    items: Vec<Alternative>, // the sum of `counts`
}

impl TokenBuffers {
    /// Empty buffers.
    pub(crate) fn new() -> Self {
        Self {
            tokens: vec![NO_TOKEN; TOKENS_MAX].into(),
            top: vec![NO_ALTERNATIVE; ALTERNATIVES_MAX].into(),
            ids: Vec::with_capacity(TOKENS_MAX),
            logprobs: Vec::with_capacity(TOKENS_MAX),
            counts: Vec::new(),
            items: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.logprobs.clear();
        self.counts.clear();
        self.items.clear();
    }

    /// Takes the tokens in `from .. end` that `copy` gives, and returns their number.
    pub(crate) fn copy_tokens(
        &mut self,
        from: u64,
        end: u64,
        has_logprobs: bool,
        copy: impl FnOnce(&mut [Token]) -> usize,
    ) -> usize {
        let wanted = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        let buffer = &mut self.tokens[..wanted.min(TOKENS_MAX)];
        let copied = copy(buffer);
        let tokens = &buffer[..copied];
        self.ids.extend(tokens.iter().map(|token| token.id));
        if has_logprobs {
            self.logprobs
                .extend(tokens.iter().map(|token| token.logprob));
        }
        copied
    }

    /// Takes `top_n` alternatives for each of `tokens` tokens; `copy` gives those from an index on.
    fn copy_alternatives(
        &mut self,
        tokens: usize,
        top_n: usize,
        copy: impl Fn(usize, &mut [TopLogprob]) -> usize,
    ) {
        let all = tokens * top_n;
        while self.items.len() < all {
            let wanted = (all - self.items.len()).min(ALTERNATIVES_MAX);
            let copied = copy(self.items.len(), &mut self.top[..wanted]);
            if copied == 0 {
                break;
            }
            self.items
                .extend(self.top[..copied].iter().map(|top| Alternative {
                    id: top.id,
                    logprob: top.logprob,
                }));
        }
        // Prompt tokens that are part of an answer may have none.
        self.items.truncate(self.items.len() / top_n * top_n);
        let full = self.items.len() / top_n;
        self.counts
            .resize(full, u8::try_from(top_n).unwrap_or(u8::MAX));
        self.counts.resize(tokens, 0);
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The tokens as a record of `choice`, the first of them with index `first`.
    pub(crate) fn as_record(&self, choice: u32, first: u64) -> Tokens<'_> {
        Tokens {
            choice,
            // The format's bound on tokens of a choice is below 2^32.
            first: u32::try_from(first).unwrap_or(u32::MAX),
            ids: &self.ids,
            logprobs: &self.logprobs,
            alternatives: Alternatives {
                counts: &self.counts,
                items: &self.items,
            },
        }
    }
}
