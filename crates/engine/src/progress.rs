//! How far a request is: written by the engine, read by whoever holds the `Arc`.

use crate::{Follower, Transition};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// In the inbox or waiting for a place in the batch.
    Queued = 0,
    /// Its prompt is being computed.
    Prefilling = 1,
    /// At least one choice generates.
    Running = 2,
    /// Every live choice waits for credit or pages.
    Parked = 3,
    /// Every choice has ended.
    Ended = 4,
    /// Somebody asked for it to stand still.
    Paused = 5,
}

/// Plain counters; each is consistent by itself.
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
    drafted: AtomicU64,
    accepted: AtomicU64,
}

/// Time choices were parked for credit: what is counted, and how many are parked since when it was.
///
/// The engine writes; who reads takes `counted_ns` first and `upto_ns` last. In between the engine may have
/// counted on: then the sum is short by that step, never too long.
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
    /// Of a request whose transitions are told to `follower`.
    pub fn followed(follower: Box<dyn Follower>) -> Self {
        Self {
            follower: Some(follower),
            ..Self::default()
        }
    }
    /// Where the request is.
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
    /// Prompt tokens whose keys and values exist.
    pub fn prompt_done(&self) -> u64 {
        self.prompt_done.load(Ordering::Relaxed)
    }
    /// Prompt tokens that were taken from the prefix cache.
    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens.load(Ordering::Relaxed)
    }
    /// When its prefill started, nanoseconds since the engine's epoch; 0 = not yet.
    pub fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }
    /// When its first token was appended, likewise.
    pub fn first_token_ns(&self) -> u64 {
        self.first_token_ns.load(Ordering::Relaxed)
    }
    /// When its last choice ended, likewise.
    pub fn ended_ns(&self) -> u64 {
        self.ended_ns.load(Ordering::Relaxed)
    }
    /// When its last token so far was appended, likewise; known from its second one on.
    pub fn last_token_ns(&self) -> u64 {
        self.last_token_ns.load(Ordering::Relaxed)
    }
    /// Time its choices were parked for credit until `now_ns` (since the engine's epoch), all together,
    /// nanoseconds.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        let counted = self.stalls.counted_ns.load(Ordering::Acquire);
        let now = self.stalls.now.load(Ordering::Acquire);
        let more = now_ns.saturating_sub(self.stalls.upto_ns.load(Ordering::Acquire));
        counted.saturating_add(now.saturating_mul(more))
    }
    /// Times its choices were parked for credit.
    pub fn parks(&self) -> u64 {
        self.parks.load(Ordering::Relaxed)
    }
    /// Times its choices were paused because somebody asked for it.
    pub fn pauses(&self) -> u64 {
        self.pauses.load(Ordering::Relaxed)
    }
    /// Times its choices gave up their pages because they were short.
    pub fn preemptions(&self) -> u64 {
        self.preemptions.load(Ordering::Relaxed)
    }
    /// Times its choices went on after they were parked or paused.
    pub fn resumes(&self) -> u64 {
        self.resumes.load(Ordering::Relaxed)
    }
    /// Tokens its choices had beyond their first ones.
    pub fn gaps(&self) -> u64 {
        self.gaps.count.load(Ordering::Relaxed)
    }
    /// Time from a choice's token to its next, all of these together, nanoseconds. Time it was parked or paused
    /// is left out, time it was preempted is not; of tokens that come together only the first was waited for.
    pub fn gaps_ns(&self) -> u64 {
        self.gaps.sum_ns.load(Ordering::Relaxed)
    }
    /// The longest of these times.
    pub fn gap_max_ns(&self) -> u64 {
        self.gaps.max_ns.load(Ordering::Relaxed)
    }
    /// Tokens that were guessed for it, all choices together.
    pub fn drafted(&self) -> u64 {
        self.drafted.load(Ordering::Relaxed)
    }
    /// Guesses that were right.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// The engine's side. An instant that is known only roughly is written at once and again when it
/// is known better: see [`crate::Engine::step`].
impl Progress {
    pub(crate) fn tell(&self, what: Transition, at: Instant) {
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
        self.cached_tokens.store(tokens as u64, Ordering::Relaxed);
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
    /// One of its choices is parked for credit from now on.
    pub(crate) fn stall_begins(&self, now_ns: u64) {
        self.parks.fetch_add(1, Ordering::Relaxed);
        self.stalls.upto_ns.store(now_ns, Ordering::Release);
        self.stalls.now.fetch_add(1, Ordering::Release);
    }
    /// A choice that is parked for credit was so for so long, up to now.
    pub(crate) fn stall_goes_on(&self, ns: u64, now_ns: u64) {
        self.stalls.upto_ns.store(now_ns, Ordering::Release);
        self.stalls.counted_ns.fetch_add(ns, Ordering::Release);
    }
    /// It is not any more. Its time up to now is counted.
    pub(crate) fn stall_ends(&self) {
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
    pub(crate) fn add_guesses(&self, drafted: usize, accepted: usize) {
        self.drafted.fetch_add(drafted as u64, Ordering::Relaxed);
        self.accepted.fetch_add(accepted as u64, Ordering::Relaxed);
    }
    pub(crate) fn set_ended(&self, ns: u64) {
        self.ended_ns.store(ns, Ordering::Relaxed);
    }
}
