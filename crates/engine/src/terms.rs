//! On which terms a request is served: how urgent it is, who pays for it, how long it may take, and with
//! which others it shares cached prompts.

use std::time::{Duration, Instant};

/// The terms of one request. The default: normal, on nobody's account, without clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// How urgent it is.
    pub priority: Priority,
    /// Whose share it uses.
    pub account: Account,
    /// How long it may take.
    pub clocks: Clocks,
    /// Which requests share pages of the prefix cache with it.
    pub salt: CacheSalt,
    /// What is done when the reader clock fires.
    pub policy: Policy,
    /// When it came, for the queue clock, the total clock and the time to the first token.
    /// `None`: the head of the step that takes it in.
    pub since: Option<Instant>,
}

/// How urgent a request is; the most urgent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Before everything.
    Critical = 0,
    /// Somebody waits and should not.
    High = 1,
    /// Somebody waits.
    #[default]
    Normal = 2,
    /// Nobody is in a hurry.
    Low = 3,
    /// When there is nothing else to do.
    Background = 4,
}

impl Priority {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// All of them, the most urgent first.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Critical,
        Self::High,
        Self::Normal,
        Self::Low,
        Self::Background,
    ];
}

/// Largest weight of an account; larger ones count as this.
pub const WEIGHT_MAX: u32 = 1 << 16;

/// Who a request is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    /// Names it. Requests with the same number share one account.
    pub id: u64,
    /// Its share, against the weights of others: twice the weight, twice the tokens. From 1 to
    /// [`WEIGHT_MAX`]; 0 counts as 1.
    pub weight: u32,
}

impl Default for Account {
    fn default() -> Self {
        Self { id: 0, weight: 1 }
    }
}

/// Requests share pages of the prefix cache, the draft model's included, only under equal salts. A prompt that
/// is known under another salt is computed like one that nobody sent before: neither
/// [`crate::Progress::cached_tokens`] nor the time to the first token tells the two apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheSalt(pub u128);

impl CacheSalt {
    /// The salt of requests that were given none.
    pub const NONE: Self = Self(0);
}

/// How long each part of a request may take; `None` = as long as it takes. When one has run out
/// the work stops at the head of the next step, with `End::TimedOut` and the clock's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// From its coming until it is started. Stands still while it is paused.
    pub queue: Option<Duration>,
    /// From its start to its first token. Stands still while it is paused.
    pub first_token: Option<Duration>,
    /// From one token to the next. Stands still while it is parked or paused.
    pub idle: Option<Duration>,
    /// From its coming to its end, whatever happens.
    pub total: Option<Duration>,
    /// How long it may be parked for credit in one go; then [`Policy`] decides.
    pub reader: Option<Duration>,
}

/// What is done with a choice whose reader took nothing for longer than the reader clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// It ends with `TimedOut(Reader)`.
    #[default]
    Cancel,
    /// The observer is told ([`crate::ParkReason::Detached`]); it stays parked.
    Detach,
    /// Nothing: it stays parked.
    Keep,
}
