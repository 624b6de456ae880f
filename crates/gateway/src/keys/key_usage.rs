//! Usage of one key, and its rate limits.
//!
//! A rate limit in one number: the generic cell rate algorithm (ITU-T I.371, annex A, as virtual scheduling).
//!
//! The number is the *theoretical arrival time*: when the bucket would be full again without further requests. Taking
//! `cost` moves the number `cost` emission intervals into the future, counted from now if the number lies in the
//! past. The bucket holds one minute's worth, so an amount is available while the number stays at most a minute ahead
//! of now, and the excess is exactly the time to wait.
//!
//! A cluster divides the rate by the number of its gateways: each multiplies what it charges. A full or half empty bucket is a
//! time and so stays what it is when the number changes.
//!
//! Check and take are one atomic step: of two callers that want the last unit, one gets the unit.

use super::{Caller, KeyLimits, PrefixSharing};
use crate::lifetime_stats::LifetimeStats;
use crate::locks::lock;
use engine::{Account, CacheSalt};
use generate::error::{ApiError, Blame, ErrorKind};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::clock;

/// Counters of one key. Limits are arguments: they may change while the counters stay.
#[derive(Debug)]
pub(crate) struct KeyUsage {
    epoch: Instant,
    requests: Gcra,
    tokens: Gcra,
    /// A few sums are made under the lock, once a request.
    streams: Mutex<LifetimeStats>,
    /// Number of gateways that divide the limits, as in [`super::Keys`].
    gateways: Arc<AtomicU32>,
}

impl KeyUsage {
    /// Nothing used yet. Times before `epoch` count as `epoch`.
    pub(crate) fn new(epoch: Instant, gateways: Arc<AtomicU32>) -> Self {
        Self {
            epoch,
            requests: Gcra::default(),
            tokens: Gcra::default(),
            streams: Mutex::new(LifetimeStats::new(epoch)),
            gateways,
        }
    }

    /// Counts a request.
    pub(crate) fn count_request(
        &self,
        limits: &KeyLimits,
        now: Instant,
    ) -> Result<(), LimitExceeded> {
        let Some(per_min) = limits.requests_per_min else {
            return Ok(());
        };
        let (rate, now_ns) = (self.rate(per_min), self.since_epoch(now));
        let taken = self.requests.try_take(rate, 1, now_ns);
        taken.map_err(|why| match why {
            NotYet::Wait(wait) => LimitExceeded::Requests { per_min, wait },
            // One request always fits, the rate being at least one.
            NotYet::Never => LimitExceeded::Requests {
                per_min,
                wait: Duration::from_secs(60),
            },
        })
    }

    /// Charges a whole prompt, or nothing.
    pub(crate) fn charge_prompt(
        &self,
        limits: &KeyLimits,
        tokens: u64,
        now: Instant,
    ) -> Result<(), LimitExceeded> {
        let Some(per_min) = limits.tokens_per_min else {
            return Ok(());
        };
        let (rate, now_ns) = (self.rate(per_min), self.since_epoch(now));
        let taken = self.tokens.try_take(rate, tokens, now_ns);
        taken.map_err(|why| match why {
            NotYet::Wait(wait) => LimitExceeded::Tokens { per_min, wait },
            NotYet::Never => LimitExceeded::Prompt { per_min, tokens },
        })
    }

    /// Charges tokens that were made.
    pub(crate) fn charge_generated(&self, limits: &KeyLimits, tokens: u64, now: Instant) {
        if let Some(per_min) = limits.tokens_per_min {
            let (rate, now_ns) = (self.rate(per_min), self.since_epoch(now));
            self.tokens.take_always(rate, tokens, now_ns);
        }
    }

    /// Opens streams, all or none. More than this gateway's part of the limit are opened while no others are open.
    pub(crate) fn open_streams(
        &self,
        limits: &KeyLimits,
        streams: u32,
        now: Instant,
    ) -> Result<(), LimitExceeded> {
        let max = limits.concurrent_streams.unwrap_or(NonZeroU32::MAX);
        if streams > max.get() {
            return Err(LimitExceeded::Choices { max, streams });
        }
        let mut stats = lock(&self.streams);
        let part = max.get().div_ceil(self.gateways().get());
        let most = match stats.open_count() {
            0 => part.max(streams),
            _ => part,
        };
        stats
            .begin_lives(streams as usize, most as usize, now)
            .map_err(|wait| LimitExceeded::Streams { max, wait })
    }

    /// Counts streams that an earlier process had opened, whatever the limits.
    fn restore_streams(&self, streams: u32, now: Instant) {
        let counted = lock(&self.streams).begin_lives(streams as usize, usize::MAX, now);
        debug_assert!(counted.is_ok(), "there is no limit");
    }

    /// Streams that are open.
    #[cfg(test)]
    pub(crate) fn stream_count(&self) -> usize {
        lock(&self.streams).open_count()
    }

    fn rate(&self, per_min: NonZeroU32) -> Rate {
        let gateways = self.gateways();
        Rate { per_min, gateways }
    }

    fn gateways(&self) -> NonZeroU32 {
        // No other value is published with this one.
        let count = self.gateways.load(Ordering::Relaxed);
        NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
    }

    fn since_epoch(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

/// The unit of rates, and the capacity of a bucket in time.
const MINUTE_NS: u64 = 60_000_000_000;

/// A rate, of which a gateway has its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// The rate of all gateways together.
    pub(crate) per_min: NonZeroU32,
    /// Number of gateways; 1 outside a cluster.
    pub(crate) gateways: NonZeroU32,
}

/// A bucket. The rate is an argument, because the rate may change while the bucket stays.
#[derive(Debug, Default)]
pub(crate) struct Gcra {
    /// Nanoseconds since the epoch. No other value is published with this one, so `Relaxed` is enough.
    full_at_ns: AtomicU64,
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotYet {
    /// The amount is available after this time, if no other request takes the amount first.
    Wait(Duration),
    /// The amount exceeds the bucket's capacity.
    Never,
}

impl Gcra {
    /// Takes `cost`, or nothing. More than this gateway's part of a minute is a debt that a full bucket takes, as long as the
    /// whole rate has that much.
    pub(crate) fn try_take(&self, rate: Rate, cost: u64, now_ns: u64) -> Result<(), NotYet> {
        let gateways = NonZeroU32::MIN;
        if step_ns(Rate { gateways, ..rate }, cost) > MINUTE_NS {
            return Err(NotYet::Never);
        }
        let step_ns = step_ns(rate, cost);
        let needed_ns = step_ns.min(MINUTE_NS);
        let after = |full_at_ns: u64| full_at_ns.max(now_ns).saturating_add(needed_ns);
        let limit_ns = now_ns.saturating_add(MINUTE_NS);
        self.full_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at_ns| {
                let is_available = after(full_at_ns) <= limit_ns;
                is_available.then(|| full_at_ns.max(now_ns).saturating_add(step_ns))
            })
            .map(drop)
            .map_err(|full_at_ns| NotYet::Wait(Duration::from_nanos(after(full_at_ns) - limit_ns)))
    }

    /// Takes `cost` also when that is more than there is: a debt, paid by waiting.
    pub(crate) fn take_always(&self, rate: Rate, cost: u64, now_ns: u64) {
        let step_ns = step_ns(rate, cost);
        let _ = self
            .full_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at_ns| {
                Some(full_at_ns.max(now_ns).saturating_add(step_ns))
            });
    }
}

/// How long the bucket takes to fill by `cost`. Rounded down, so that a full bucket always gives the whole rate.
fn step_ns(rate: Rate, cost: u64) -> u64 {
    // The product may have more than 128 bits.
    let charged_ns =
        (u128::from(cost) * u128::from(MINUTE_NS)).saturating_mul(u128::from(rate.gateways.get()));
    u64::try_from(charged_ns / u128::from(rate.per_min.get())).unwrap_or(u64::MAX)
}

/// Open streams of one request, charged to the key. Dropping the permit closes the streams; tokens stay spent.
///
/// The permit keeps the limits of the time of opening: a reload does not affect running streams.
#[derive(Debug)]
pub struct KeyPermit {
    caller: Caller,
    streams: u32,
}

impl KeyPermit {
    pub(crate) fn open(caller: &Caller, streams: u32) -> Result<Self, LimitExceeded> {
        caller
            .usage()
            .open_streams(&caller.limits, streams, clock::now())?;
        Ok(Self {
            caller: caller.clone(),
            streams,
        })
    }

    /// The permit of streams that an earlier process had opened, whatever the limits of the key are now.
    pub(crate) fn restore(caller: &Caller, streams: u32) -> Self {
        caller.usage().restore_streams(streams, clock::now());
        Self {
            caller: caller.clone(),
            streams,
        }
    }

    /// Tenant whose share of the engine the sequences use.
    pub fn account(&self) -> Account {
        Account {
            id: self.caller.owner.0,
            weight: self.caller.weight,
        }
    }

    /// Salt of the request's cached prompts; `request` is the salt in the request's body.
    pub fn cache_salt(&self, sharing: PrefixSharing, request: Option<&str>) -> CacheSalt {
        self.caller.cache_salt(sharing, request)
    }

    /// Charges the prompts' tokens, or returns when the bucket has room for the tokens. To be called once, after
    /// counting and before the prompts run.
    pub fn charge_prompt(&self, tokens: u64, now: Instant) -> Result<(), LimitExceeded> {
        let Caller { limits, name, .. } = &self.caller;
        let charged = self.caller.usage().charge_prompt(limits, tokens, now);
        charged.inspect_err(|over| over.log_rejection(name))
    }

    /// Charges tokens that were generated since the last call.
    pub(crate) fn charge_generated(&self, tokens: u64, now: Instant) {
        self.token_charge().charge(tokens, now);
    }

    /// Charges tokens to the key without holding the streams.
    pub(crate) fn token_charge(&self) -> TokenCharge {
        TokenCharge(self.caller.clone())
    }
}

/// Charges work to a key after the work was done: a key in debt waits longer with the next request.
#[derive(Debug)]
pub(crate) struct TokenCharge(Caller);

impl TokenCharge {
    /// Charges tokens that were computed.
    pub(crate) fn charge(&self, tokens: u64, now: Instant) {
        self.0.usage().charge_generated(&self.0.limits, tokens, now);
    }
}

impl Drop for KeyPermit {
    fn drop(&mut self) {
        let mut lives = lock(&self.caller.usage().streams);
        lives.end_lives(self.streams as usize, clock::now());
    }
}

/// A limit of the caller's key that the request came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// Too many requests in the last minute.
    Requests { per_min: NonZeroU32, wait: Duration },
    /// Too many tokens in the last minute.
    Tokens { per_min: NonZeroU32, wait: Duration },
    /// Too many streams open.
    Streams { max: NonZeroU32, wait: Duration },
    /// A prompt that is more than a minute's worth, however long one waits.
    Prompt { per_min: NonZeroU32, tokens: u64 },
    /// More choices in one request than may be open at all.
    Choices { max: NonZeroU32, streams: u32 },
}

impl LimitExceeded {
    /// The limit's name, for metrics.
    pub(crate) fn limit_name(self) -> &'static str {
        match self {
            Self::Requests { .. } => "requests_per_min",
            Self::Tokens { .. } | Self::Prompt { .. } => "tokens_per_min",
            Self::Streams { .. } | Self::Choices { .. } => "concurrent_streams",
        }
    }

    /// Logs the limit for the operator.
    pub(crate) fn log_rejection(self, name: &str) {
        tracing::debug!(key = name, limit = self.limit_name(), "over its limit");
    }

    fn error_message(self) -> String {
        match self {
            Self::Requests { per_min, .. } => {
                format!("this key may make {per_min} requests per minute")
            }
            Self::Tokens { per_min, .. } => {
                format!("this key may use {per_min} tokens per minute, and has used them")
            }
            Self::Streams { max, .. } => {
                format!("this key may have {max} streams open at one time")
            }
            Self::Prompt { per_min, tokens } => {
                format!("the prompt has {tokens} tokens; this key may use {per_min} per minute")
            }
            Self::Choices { max, streams } => format!(
                "the request asks for {streams} answers; this key may have {max} open at one time"
            ),
        }
    }

    /// When a retry may succeed; `None`: never.
    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Requests { wait, .. }
            | Self::Tokens { wait, .. }
            | Self::Streams { wait, .. } => Some(wait),
            Self::Prompt { .. } | Self::Choices { .. } => None,
        }
    }
}

impl From<LimitExceeded> for ApiError {
    fn from(over: LimitExceeded) -> Self {
        let (kind, code) = match over {
            LimitExceeded::Requests { .. }
            | LimitExceeded::Tokens { .. }
            | LimitExceeded::Streams { .. } => (ErrorKind::RateLimited, "rate_limit_exceeded"),
            LimitExceeded::Prompt { .. } => (ErrorKind::TooLarge, "prompt_over_quota"),
            LimitExceeded::Choices { .. } => (ErrorKind::Invalid, "choices_over_quota"),
        };
        let error = Self::new(kind, Blame::Caller, code, over.error_message());
        Self {
            retry_after: over.retry_after(),
            ..error
        }
    }
}

#[cfg(test)]
#[path = "tests/gcra.rs"]
mod tests;
