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
    stalled_ns: AtomicU64,
    parks: AtomicU64,
    follower: Option<Box<dyn Follower>>,
    drafted: AtomicU64,
    accepted: AtomicU64,
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
    /// Time its choices were parked for credit, all together, nanoseconds.
    pub fn stalled_ns(&self) -> u64 {
        self.stalled_ns.load(Ordering::Relaxed)
    }
    /// Times its choices were parked for credit.
    pub fn parks(&self) -> u64 {
        self.parks.load(Ordering::Relaxed)
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
    pub(crate) fn add_stall(&self, ns: u64) {
        self.stalled_ns.fetch_add(ns, Ordering::Relaxed);
    }
    pub(crate) fn add_park(&self) {
        self.parks.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn add_guesses(&self, drafted: usize, accepted: usize) {
        self.drafted.fetch_add(drafted as u64, Ordering::Relaxed);
        self.accepted.fetch_add(accepted as u64, Ordering::Relaxed);
    }
    pub(crate) fn set_ended(&self, ns: u64) {
        self.ended_ns.store(ns, Ordering::Relaxed);
    }
}
