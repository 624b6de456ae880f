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

use super::KeyLimits;
use super::permit::LimitExceeded;
use crate::lifetime_stats::LifetimeStats;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
        let mut stats = self.lifetime_stats();
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
    pub(crate) fn restore_streams(&self, streams: u32, now: Instant) {
        let counted = self
            .lifetime_stats()
            .begin_lives(streams as usize, usize::MAX, now);
        debug_assert!(counted.is_ok(), "there is no limit");
    }

    /// Closes streams that were opened.
    pub(crate) fn close_streams(&self, streams: u32, now: Instant) {
        self.lifetime_stats().end_lives(streams as usize, now);
    }

    /// Streams that are open.
    #[cfg(test)]
    pub(crate) fn stream_count(&self) -> usize {
        self.lifetime_stats().open_count()
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

    fn lifetime_stats(&self) -> MutexGuard<'_, LifetimeStats> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
#[path = "tests/gcra.rs"]
mod tests;
