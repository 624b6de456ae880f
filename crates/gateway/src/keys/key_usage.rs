//! Usage of one key.

use super::KeyLimits;
use super::gcra::{Gcra, NotYet, Rate};
use super::limit_exceeded::LimitExceeded;
use crate::lifetime_stats::LifetimeStats;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
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
