//! Terms of service of a request: priority, account, time limits, and the salt of the prefix cache.

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
