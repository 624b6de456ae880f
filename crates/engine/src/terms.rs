//! Terms of service of a request (priority, account, time limits, the salt of the prefix cache), names of requests and
//! of sequences, and permits.
//!
//! # Permits
//! A permit is the right of one of a request's sequences to run, counted by the caller.
//! A request may have more sequences than the caller has permits for, and a parked sequence
//! needs none. So the engine asks for a permit for each sequence separately, at the head of a step:
//!
//! ```text
//! none --(request)--> wanted --(take)--> held
//!  ^                    |                 |
//!  +---- withdraw ------+                 |
//!  +---- give_back -----------------------+
//! ```
//!
//! - A sequence keeps a permit unless the request is paused or the sequence has been parked for credit for longer
//!   than [`PERMIT_KEPT`]. A reader that is slow for a moment therefore costs the stream nothing.
//! - Without a permit a queued request is not started, and a started sequence is parked: no rows, and the
//!   sequence's pages are taken first where pages are short. Preempted tokens are computed again, so no token
//!   is lost.
//! - The caller may recall a permit from a request with several choices; the youngest choice with one is parked.
//! - An ended sequence returns the permit, or withdraws the request for a permit, before the log ends.
//! - A thread that frees a permit wakes the engine after that, with the waker of [`SequencePermits::wake_by`]. The engine
//!   takes permits at the head of the next step, so no free permit is missed.
//!
//! All calls come from the engine thread. They may take a short lock; they never wait for a permit.

use std::task::Waker;
use std::time::{Duration, Instant};

/// The terms of one request. The default: normal priority, account 0, no time limits, no salt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Priority over other requests.
    pub priority: Priority,
    /// Account that is charged.
    pub account: Account,
    /// Time limits.
    pub clocks: Clocks,
    /// Only requests with the same salt share cached pages.
    pub salt: CacheSalt,
    /// Reaction to a reader clock that runs out.
    pub policy: Policy,
    /// Arrival, for the queue clock, the total clock and the time to first token. `None`: the head of the
    /// step that takes the request from the inbox.
    pub since: Option<Instant>,
}

/// Priority of a request; the most urgent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Served before all others.
    Critical = 0,
    /// Interactive, latency matters.
    High = 1,
    /// Interactive.
    #[default]
    Normal = 2,
    /// Batch work.
    Low = 3,
    /// Served when nothing else is to do.
    Background = 4,
}

impl Priority {
    /// Number of priorities.
    pub const COUNT: usize = 5;

    /// All priorities, the most urgent first.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Critical,
        Self::High,
        Self::Normal,
        Self::Low,
        Self::Background,
    ];
}

/// Largest weight of an account; larger values count as `WEIGHT_MAX`.
pub const WEIGHT_MAX: u32 = 1 << 16;

/// The account that a request is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    /// Requests with the same id share one account.
    pub id: u64,
    /// Fair share relative to other accounts: twice the weight, twice the tokens. From 1 to
    /// [`WEIGHT_MAX`]; 0 counts as 1.
    pub weight: u32,
}

impl Default for Account {
    fn default() -> Self {
        Self { id: 0, weight: 1 }
    }
}

/// Requests share pages of the prefix cache, the draft model's included, only under equal salts. A prompt that
/// is cached under another salt is computed like a new one: neither
/// [`crate::Progress::cached_tokens`] nor the time to the first token tells the two apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheSalt(pub u128);

impl CacheSalt {
    /// The salt of requests without one.
    pub const NONE: Self = Self(0);
}

/// Time limits of the parts of a request; `None` = unlimited. When one has passed,
/// the work stops at the head of the next step, with `End::TimedOut` and the clock's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// From the arrival to the start. Stopped while the request is paused.
    pub queue: Option<Duration>,
    /// From the start to the first token. Stopped while the request is paused.
    pub first_token: Option<Duration>,
    /// From one token to the next. Stopped while the request is parked or paused.
    pub idle: Option<Duration>,
    /// From the arrival to the end. Never stopped.
    pub total: Option<Duration>,
    /// Longest uninterrupted time parked for credit; then [`Policy`] decides.
    pub reader: Option<Duration>,
}

/// Reaction to a reader that accepts no token for longer than the reader clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The choice ends with `TimedOut(Reader)`.
    #[default]
    Cancel,
    /// The observer is notified ([`crate::ParkReason::Detached`]); the choice stays parked.
    Detach,
    /// The choice stays parked.
    Keep,
}

/// The id of a request, unique within one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A sequence's position in arrival order: the request's queue number, then the choice number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age(pub(crate) u64, pub(crate) u32);

impl Age {
    /// Later than every sequence.
    pub(crate) const MAX: Self = Self(u64::MAX, u32::MAX);
}

/// Time that a sequence parked for credit keeps the permit.
pub const PERMIT_KEPT: Duration = Duration::from_millis(500);

/// The permits of one request's sequences. The drop returns permits that are still held.
pub trait SequencePermits: Send {
    /// Sets the waker to call when a permit becomes free. Called once, before any other method.
    fn wake_by(&mut self, waker: Waker);

    /// Takes a permit for a sequence that requested one. Returns false if none is free.
    fn take(&mut self) -> bool;

    /// Requests a permit for one more sequence.
    fn request(&mut self);

    /// Whether a sequence should return the permit and request a new one, because another request waits for a permit.
    /// Called in each step for requests with several choices.
    fn is_recalled(&mut self) -> bool {
        false
    }

    /// Withdraws a sequence's request for a permit that was not taken yet.
    fn withdraw(&mut self);

    /// Returns a permit that was taken.
    fn give_back(&mut self);
}

/// Whether a sequence holds a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitState {
    /// Without a permit, and none requested.
    None,
    /// Waiting for a permit.
    Wanted,
    /// Holding a permit, or part of a request that needs none.
    Held,
}
