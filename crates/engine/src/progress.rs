//! A request's progress, written by the engine thread and read by any holder of the `Arc`, and observers of requests
//! and steps, called on the engine thread.

use crate::{RequestId, Token, TopLogprob};
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;
use stream::End;

/// The phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// In the inbox or waiting to be started.
    Queued = 0,
    /// Computing the prompt.
    Prefilling = 1,
    /// Generating, at least one choice.
    Running = 2,
    /// Waiting for credit, pages or permits, every live choice.
    Parked = 3,
    /// Ended, every choice.
    Ended = 4,
    /// Paused by [`crate::Handle::pause`].
    Paused = 5,
}

/// Counters and times of one request; each value is consistent by itself.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    prompt_done: AtomicU64,
    cached_tokens: AtomicU64,
    /// Nanoseconds since the engine's epoch; 0 = has not happened.
    started_ns: AtomicU64,
    first_token_ns: AtomicU64,
    ended_ns: AtomicU64,
    last_token_ns: AtomicU64,
    stalls: Stalls,
    gaps: Gaps,
    parks: AtomicU64,
    pauses: AtomicU64,
    preemptions: AtomicU64,
    resumes: AtomicU64,
    follower: Option<Box<dyn Follower>>,
    encode_ns: AtomicU64,
    drafted: AtomicU64,
    accepted: AtomicU64,
    updates_begun: AtomicU64,
    updates_applied: AtomicU64,
    /// Values from before a restart, which the engine does not replace.
    given: Option<GivenProgress>,
    ending: OnceLock<EndingToken>,
    /// Memory for the alternatives of the ending token, allocated before the request is submitted.
    ending_room: Mutex<Vec<TopLogprob>>,
}

/// The end-of-sequence token of a choice, which is no part of its log.
#[derive(Clone, Debug, PartialEq)]
pub struct EndingToken {
    /// The token.
    pub token: Token,
    /// Alternatives, best first.
    pub top: Vec<TopLogprob>,
}

/// Values of a resumed request that stay as they were before the restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenProgress {
    /// Prompt tokens that were taken from the prefix cache when the answer began.
    pub cached_tokens: u64,
}

/// Time that choices were parked for credit: the time counted so far, up to `upto_ns`, and the number of choices
/// parked now.
///
/// The engine writes. A reader loads `counted_ns` first and `upto_ns` last. If the engine counts a step in
/// between, the sum is short by that step, never too long.
#[derive(Debug, Default)]
struct Stalls {
    counted_ns: AtomicU64,
    now: AtomicU64,
    upto_ns: AtomicU64,
}

/// Times between a choice's tokens.
#[derive(Debug, Default)]
struct Gaps {
    count: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Progress {
    /// The progress of a request whose transitions are reported to `follower`.
    pub fn followed(follower: Box<dyn Follower>) -> Self {
        Self {
            follower: Some(follower),
            ..Self::default()
        }
    }

    /// With room for so many alternatives of the token that ends a choice.
    #[must_use]
    pub fn with_ending_room(self, alternatives: usize) -> Self {
        Self {
            ending_room: Mutex::new(Vec::with_capacity(alternatives)),
            ..self
        }
    }

    /// Sets values that the engine does not replace: the request resumes an answer from before a restart.
    pub fn with_given(self, given: GivenProgress) -> Self {
        Self {
            cached_tokens: given.cached_tokens.into(),
            given: Some(given),
            ..self
        }
    }

    /// The phase of the request.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Queued,
            1 => Phase::Prefilling,
            2 => Phase::Running,
            3 => Phase::Parked,
            5 => Phase::Paused,
            _ => Phase::Ended,
        }
    }

    /// Prompt tokens whose keys and values exist; of a resumed request the tokens so far are part of the prompt.
    pub fn prompt_done(&self) -> u64 {
        self.prompt_done.load(Ordering::Relaxed)
    }

    /// The token that ended the first choice with one, where log-probabilities were requested.
    pub fn ending(&self) -> Option<&EndingToken> {
        self.ending.get()
    }

    pub(crate) fn set_ending(&self, token: Token, top: &[TopLogprob]) {
        let mut room = self
            .ending_room
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut kept = std::mem::take(&mut *room);
        // An engine step allocates nothing.
        kept.extend_from_slice(&top[..top.len().min(kept.capacity())]);
        let _ = self.ending.set(EndingToken { token, top: kept });
    }

    /// Prompt tokens that were taken from the prefix cache.
    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens.load(Ordering::Relaxed)
    }

    /// Start of the prefill, nanoseconds since the engine's epoch; 0 = not yet.
    pub fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }

    /// Time of the first token, nanoseconds since the engine's epoch; 0 = not yet.
    pub fn first_token_ns(&self) -> u64 {
        self.first_token_ns.load(Ordering::Relaxed)
    }

    /// End of the last choice, nanoseconds since the engine's epoch; 0 = not yet.
    pub fn ended_ns(&self) -> u64 {
        self.ended_ns.load(Ordering::Relaxed)
    }

    /// Time of the last token so far, nanoseconds since the engine's epoch; 0 before the second token.
    pub fn last_token_ns(&self) -> u64 {
        self.last_token_ns.load(Ordering::Relaxed)
    }

    /// Time that choices were parked for credit until `now_ns` (since the engine's epoch), summed over choices,
    /// nanoseconds.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        let counted = self.stalls.counted_ns.load(Ordering::Acquire);
        let now = self.stalls.now.load(Ordering::Acquire);
        let more = now_ns.saturating_sub(self.stalls.upto_ns.load(Ordering::Acquire));
        counted.saturating_add(now.saturating_mul(more))
    }

    /// Times a choice was parked for credit.
    pub fn parks(&self) -> u64 {
        self.parks.load(Ordering::Relaxed)
    }

    /// Times a choice was paused.
    pub fn pauses(&self) -> u64 {
        self.pauses.load(Ordering::Relaxed)
    }

    /// Number of preemptions: a choice lost its pages to another.
    pub fn preemptions(&self) -> u64 {
        self.preemptions.load(Ordering::Relaxed)
    }

    /// Number of times that a choice resumed after parking for credit or a pause.
    pub fn resumes(&self) -> u64 {
        self.resumes.load(Ordering::Relaxed)
    }

    /// Number of tokens that were not the first of their choice.
    pub fn gaps(&self) -> u64 {
        self.gaps.count.load(Ordering::Relaxed)
    }

    /// Sum of the times from a token of a choice to the next token, nanoseconds. Parked and paused time is
    /// excluded, preempted time is included; of tokens of the same step only the first counts.
    pub fn gaps_ns(&self) -> u64 {
        self.gaps.sum_ns.load(Ordering::Relaxed)
    }

    /// The longest time from a token of a choice to the next token, nanoseconds.
    pub fn gap_max_ns(&self) -> u64 {
        self.gaps.max_ns.load(Ordering::Relaxed)
    }

    /// Time that the encoder spent on the request's inputs, nanoseconds; complete when the first token is there. An input that
    /// was encoded for another request takes no time.
    pub fn encode_ns(&self) -> u64 {
        self.encode_ns.load(Ordering::Relaxed)
    }

    /// Draft tokens, summed over choices.
    pub fn drafted(&self) -> u64 {
        self.drafted.load(Ordering::Relaxed)
    }

    /// Draft tokens that were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Updates ([`crate::Handle::update`]) whose injected tokens may be in the logs: counted before the first of these
    /// is appended. A reader that finds [`Progress::updates_applied`] below this count is in the middle of an update.
    pub fn updates_begun(&self) -> u64 {
        self.updates_begun.load(Ordering::Acquire)
    }

    /// Updates in effect: counted when all injected tokens are in the logs. The next token is sampled with the new
    /// parameters.
    pub fn updates_applied(&self) -> u64 {
        self.updates_applied.load(Ordering::Acquire)
    }
}

/// The engine's side. Times of events after the forward pass are written twice: see
/// [`crate::Engine::step`].
impl Progress {
    pub(crate) fn notify(&self, what: Transition, at: Instant) {
        if let Some(follower) = &self.follower {
            follower.transition(what, at);
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn set_prompt_done(&self, tokens: usize) {
        self.prompt_done.store(tokens as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_cached_tokens(&self, tokens: usize) {
        if self.given.is_none() {
            self.cached_tokens.store(tokens as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_started(&self, ns: u64) {
        self.started_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn set_first_token(&self, ns: u64) {
        self.first_token_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn add_gap(&self, ns: u64, now_ns: u64) {
        self.last_token_ns.store(now_ns, Ordering::Relaxed);
        self.gaps.count.fetch_add(1, Ordering::Relaxed);
        self.gaps.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.gaps.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// A choice is parked for credit from now on.
    pub(crate) fn begin_stall(&self, now_ns: u64) {
        self.parks.fetch_add(1, Ordering::Relaxed);
        self.stalls.upto_ns.store(now_ns, Ordering::Release);
        self.stalls.now.fetch_add(1, Ordering::Release);
    }

    /// A choice was parked for credit for another `ns`, up to now.
    pub(crate) fn extend_stall(&self, ns: u64, now_ns: u64) {
        self.stalls.upto_ns.store(now_ns, Ordering::Release);
        self.stalls.counted_ns.fetch_add(ns, Ordering::Release);
    }

    /// A choice is parked for credit no more. The time up to now is counted already.
    pub(crate) fn end_stall(&self) {
        self.stalls.now.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn add_pause(&self) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_preemption(&self) {
        self.preemptions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_resume(&self) {
        self.resumes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_encode(&self, ns: u64) {
        self.encode_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn add_drafts(&self, drafted: usize, accepted: usize) {
        self.drafted.fetch_add(drafted as u64, Ordering::Relaxed);
        self.accepted.fetch_add(accepted as u64, Ordering::Relaxed);
    }

    /// An update is about to be applied.
    pub(crate) fn begin_update(&self) {
        self.updates_begun.fetch_add(1, Ordering::Release);
    }

    /// The injected tokens of the update are in the logs.
    pub(crate) fn finish_update(&self) {
        self.updates_applied.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn set_ended(&self, ns: u64) {
        self.ended_ns.store(ns, Ordering::Relaxed);
    }
}

/// Receives transitions and steps of all requests. Called on the engine thread between two steps' work: must be quick and
/// must not wait. An observer that panics is dropped and counted ([`crate::Stats::observer_panics`]).
pub trait Observer: Send {
    /// Reports a transition of a request. Called once per transition, never per token, in the order of
    /// [`Transition`].
    fn transition(&mut self, request: RequestId, what: Transition, at: Instant);

    /// Reports a step in which the model ran.
    fn step(&mut self, facts: &StepFacts);
}

/// Receives the transitions of one request, under the rules of [`Observer`].
/// A follower is part of the request (see [`crate::Progress::followed`]), so transitions need no lookup. One that panics is
/// counted like an observer, but not dropped.
pub trait Follower: Send + Sync + fmt::Debug {
    /// Reports a transition of the request.
    fn transition(&self, what: Transition, at: Instant);
}

/// A transition of a request, all choices together.
///
/// The order: `Queued` first, `Ended` last, both once; `Started` once before `FirstToken`, which
/// comes at most once. Between `Queued` and `Ended` a request runs or is stopped. A request is stopped
/// from a `Backpressure`, `Parked` or `Preempted` to the next `Resumed`; one reason may
/// follow another without a `Resumed` in between. `SlowConsumer` comes after a `Backpressure`, at
/// most once for each. A stopped request may end. A queued request can only be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// Taken from the inbox.
    Queued,
    /// Started: the prompt is being computed.
    Started,
    /// The first token can be read.
    FirstToken,
    /// Parked, because the readers' credit is used up. Repeated only after a `Resumed`, which comes
    /// when a quarter of the window is free again; a reader that takes one token at a time causes
    /// one `Backpressure`, not many.
    Backpressure,
    /// Parked for credit longer than [`crate::EngineConfig::slow_consumer`].
    SlowConsumer,
    /// Parked for another reason.
    Parked {
        /// The reason.
        reason: ParkReason,
    },
    /// Running or queued again.
    Resumed,
    /// Preempted: the pages were given to another request.
    Preempted,
    /// Runs on another engine than before; only requests of a remote handle. Changes nothing else.
    Moved,
    /// The last choice has ended, with this end.
    Ended(End),
}

/// Reason why a request is parked, other than want of credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParkReason {
    /// [`crate::Handle::pause`].
    Paused,
    /// The permits were returned while the sequences were parked, and other requests hold them now
    /// ([`crate::SequencePermits`]).
    NoPermit,
    /// The reader clock ran out under [`crate::Policy::Detach`].
    Detached,
}

/// Measurements of a step in which the model ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFacts {
    /// Rows of prompts, or of tokens lost to a preemption.
    pub rows_prefill: usize,
    /// Rows of decoding sequences, draft tokens left out.
    pub rows_decode: usize,
    /// Rows of draft tokens.
    pub rows_draft: usize,
    /// Sequences with rows.
    pub batch: usize,
    /// Tokens appended to logs.
    pub tokens: usize,
    /// Time from this step's head to the next one's, nanoseconds.
    pub duration_ns: u64,
}
