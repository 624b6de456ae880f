//! Keys of a process, shared by its requests and its connection to the others.

use super::core::{SharesCore, SharesCounts};
use super::key_state::{KeyState, SharedLimits};
use super::rate_share::Shortage;
use super::standing::Standing;
use super::stream_share::StreamShortage;
use crate::messages::UsageReport;
use crate::names::InstanceId;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The shares of this process. Clones are the same shares. The lock is held for a few sums, or for one report.
#[derive(Clone)]
pub struct KeyShares {
    shared: Arc<Shared>,
}

struct Shared {
    epoch: Instant,
    core: Mutex<SharesCore>,
}

/// The limits of one key, for all gateways together. Further handles of the key use the same counters, which
/// are forgotten with the last handle.
pub struct KeyShare {
    shared: Arc<Shared>,
    owner: u64,
}

impl KeyShares {
    /// The shares of a process that has just started.
    pub fn new(own: InstanceId, epoch: Instant) -> Self {
        Self {
            shared: Arc::new(Shared {
                epoch,
                core: Mutex::new(SharesCore::new(own)),
            }),
        }
    }

    /// A handle of the key with this owner of streams.
    pub fn key(&self, owner: u64, limits: SharedLimits) -> KeyShare {
        self.shared.core().add_key(owner, limits);
        KeyShare {
            shared: Arc::clone(&self.shared),
            owner,
        }
    }

    /// Takes a message of another gateway.
    pub fn receive(&self, message: &[u8], now: Instant) {
        let now_ns = self.shared.since_epoch(now);
        self.shared.core().receive(message, now_ns);
    }

    /// The next report; see [`SharesCore::tick`].
    pub fn tick(&self, is_connected: bool, now: Instant) -> UsageReport {
        let now_ns = self.shared.since_epoch(now);
        self.shared.core().tick(is_connected, now_ns)
    }

    /// The last report.
    pub fn leave(&self, now: Instant) -> UsageReport {
        let now_ns = self.shared.since_epoch(now);
        self.shared.core().leave(now_ns)
    }

    /// How many gateways there are.
    pub fn standing(&self) -> Standing {
        self.shared.core().standing()
    }

    /// Counts since the start.
    pub fn counts(&self) -> SharesCounts {
        self.shared.core().counts()
    }
}

impl KeyShare {
    /// Replaces the limits with which the usage of other gateways is counted.
    pub fn set_limits(&self, limits: SharedLimits) {
        self.shared.core().key_mut(self.owner).0.limits = limits;
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn count_request(&self, per_min: NonZeroU32, now: Instant) -> Result<(), Shortage> {
        self.with(now, |key, standing, now_ns| {
            key.requests.try_take(per_min, 1, standing, now_ns)
        })
    }

    /// Charges tokens, or nothing.
    ///
    /// # Errors
    /// There are fewer tokens.
    pub fn charge_prompt(
        &self,
        per_min: NonZeroU32,
        tokens: u64,
        now: Instant,
    ) -> Result<(), Shortage> {
        self.with(now, |key, standing, now_ns| {
            key.tokens.try_take(per_min, tokens, standing, now_ns)
        })
    }

    /// Charges tokens that were made.
    pub fn charge_generated(&self, per_min: NonZeroU32, tokens: u64, now: Instant) {
        self.with(now, |key, standing, now_ns| {
            key.tokens.take_always(per_min, tokens, standing, now_ns);
        });
    }

    /// Opens choices, all or none.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn open_streams(
        &self,
        max: NonZeroU32,
        streams: u32,
        now: Instant,
    ) -> Result<(), StreamShortage> {
        self.with(now, |key, standing, now_ns| {
            key.streams.open(max, streams, standing, now_ns)
        })
    }

    /// Counts open choices whatever the limits are.
    pub fn add_streams(&self, streams: u32) {
        self.shared
            .core()
            .key_mut(self.owner)
            .0
            .streams
            .add(streams);
    }

    /// Choices have ended.
    pub fn close_streams(&self, streams: u32) {
        self.shared
            .core()
            .key_mut(self.owner)
            .0
            .streams
            .close(streams);
    }

    fn with<T>(&self, now: Instant, act: impl FnOnce(&mut KeyState, Standing, u64) -> T) -> T {
        let now_ns = self.shared.since_epoch(now);
        let mut core = self.shared.core();
        let (key, standing) = core.key_mut(self.owner);
        act(key, standing, now_ns)
    }
}

impl Drop for KeyShare {
    fn drop(&mut self) {
        self.shared.core().remove_key(self.owner);
    }
}

impl Shared {
    fn core(&self) -> MutexGuard<'_, SharesCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since_epoch(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for KeyShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyShares").finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyShare").finish_non_exhaustive()
    }
}
