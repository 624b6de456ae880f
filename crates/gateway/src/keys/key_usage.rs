//! Usage of one key.

use super::KeyLimits;
use super::gcra::{Gcra, NotYet};
use super::limit_exceeded::LimitExceeded;
use crate::lifetime_stats::LifetimeStats;
use cluster::shares::{KeyShare, Shortage, StreamShortage};
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Counters of one key. Limits are arguments: they may change while the counters stay.
#[derive(Debug)]
pub(crate) struct KeyUsage {
    epoch: Instant,
    requests: Gcra,
    tokens: Gcra,
    /// A few sums are made under the lock, once a request.
    streams: Mutex<LifetimeStats>,
    /// Set in a cluster: the limits hold for all gateways together, and `requests` and `tokens` are not used.
    share: OnceLock<KeyShare>,
}

impl KeyUsage {
    /// Nothing used yet. Times before `epoch` count as `epoch`.
    pub(crate) fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            requests: Gcra::default(),
            tokens: Gcra::default(),
            streams: Mutex::new(LifetimeStats::new(epoch)),
            share: OnceLock::new(),
        }
    }

    /// From now on the limits hold for all gateways of a cluster together. Only the first call has an effect.
    pub(crate) fn set_share(&self, share: KeyShare) {
        let _ = self.share.set(share);
    }

    /// The limits have changed.
    pub(crate) fn update_limits(&self, limits: &KeyLimits) {
        if let Some(share) = self.share.get() {
            share.set_limits(limits.shared());
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
        let taken = match self.share.get() {
            Some(share) => share.count_request(per_min, now).map_err(NotYet::from),
            None => self.requests.try_take(per_min, 1, self.since_epoch(now)),
        };
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
        let taken = match self.share.get() {
            Some(share) => share
                .charge_prompt(per_min, tokens, now)
                .map_err(NotYet::from),
            None => self.tokens.try_take(per_min, tokens, self.since_epoch(now)),
        };
        taken.map_err(|why| match why {
            NotYet::Wait(wait) => LimitExceeded::Tokens { per_min, wait },
            NotYet::Never => LimitExceeded::Prompt { per_min, tokens },
        })
    }

    /// Charges tokens that were made.
    pub(crate) fn charge_generated(&self, limits: &KeyLimits, tokens: u64, now: Instant) {
        let Some(per_min) = limits.tokens_per_min else {
            return;
        };
        match self.share.get() {
            Some(share) => share.charge_generated(per_min, tokens, now),
            None => self
                .tokens
                .take_always(per_min, tokens, self.since_epoch(now)),
        }
    }

    /// Opens streams, all or none.
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
        let Some(share) = self.share.get() else {
            return stats
                .begin_lives(streams as usize, max.get() as usize, now)
                .map_err(|wait| LimitExceeded::Streams { max, wait });
        };
        let opened = share.open_streams(max, streams, now);
        let wait = match opened {
            Ok(()) => {
                let counted = stats.begin_lives(streams as usize, usize::MAX, now);
                debug_assert!(counted.is_ok(), "there is no limit");
                return Ok(());
            }
            Err(StreamShortage::Places(places)) => stats.wait_for(places as usize, now),
            Err(StreamShortage::Wait(wait)) => wait,
        };
        Err(LimitExceeded::Streams { max, wait })
    }

    /// Counts streams that an earlier process had opened, whatever the limits.
    pub(crate) fn restore_streams(&self, streams: u32, now: Instant) {
        let counted = self
            .lifetime_stats()
            .begin_lives(streams as usize, usize::MAX, now);
        debug_assert!(counted.is_ok(), "there is no limit");
        if let Some(share) = self.share.get() {
            share.add_streams(streams);
        }
    }

    /// Closes streams that were opened.
    pub(crate) fn close_streams(&self, streams: u32, now: Instant) {
        self.lifetime_stats().end_lives(streams as usize, now);
        if let Some(share) = self.share.get() {
            share.close_streams(streams);
        }
    }

    /// Streams that are open.
    #[cfg(test)]
    pub(crate) fn stream_count(&self) -> usize {
        self.lifetime_stats().open_count()
    }

    fn lifetime_stats(&self) -> MutexGuard<'_, LifetimeStats> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since_epoch(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

impl From<Shortage> for NotYet {
    fn from(shortage: Shortage) -> Self {
        match shortage {
            Shortage::Wait(wait) => Self::Wait(wait),
            Shortage::Never => Self::Never,
        }
    }
}
