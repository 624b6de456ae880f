//! The logs of a durable stream, as the recorder reads them.

use super::token_buffers::{NO_TOKEN, TokenBuffers};
use engine::{Phase, Progress, Token, TopLogprob};
use generate::ended_time::EndedTime;
use generate::stream_source::StartedGeneration;
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
