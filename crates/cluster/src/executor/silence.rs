//! Attempts of gateways that are silent, and attempts that have ended.
//!
//! A gateway that is not heard for [`GATEWAY_SILENCE`] has died, or cannot reach this process. Attempts of streams that another
//! gateway can continue are paused, so that they use neither rows nor pages, and kept for [`ADOPTION_WAIT`] in all; the others are
//! cancelled. A gateway that is heard again has its attempts back.

use super::attempts::{Attempts, ENDED_KEPT_MAX};
use super::running::RunningAttempt;
use crate::names::InstanceId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time that an ended attempt is kept for reads.
pub const ENDED_WAIT: Duration = Duration::from_secs(60);
/// A gateway that was not heard for so long is gone: its attempts are paused, or cancelled where no other gateway can
/// continue their streams.
pub const GATEWAY_SILENCE: Duration = Duration::from_secs(10);
/// Time since a gateway was heard last in which another gateway can adopt its attempts.
pub const ADOPTION_WAIT: Duration = Duration::from_secs(60);

impl Attempts {
    /// Notes a sign of life of a gateway.
    pub fn hear(&mut self, gateway: InstanceId, now: Instant) {
        if let Some(heard) = self.heard.get_mut(&gateway) {
            *heard = now;
            if self.silent.remove(&gateway) {
                self.set_orphaned(gateway, false);
            }
        }
    }

    /// Pauses or cancels the attempts of silent gateways, and forgets ended attempts after their time.
    pub fn expire(&mut self, now: Instant) {
        let silence = |heard: &Instant| now.saturating_duration_since(*heard);
        let heard = self.heard.iter();
        let silent: Vec<_> = heard
            .map(|(gateway, heard)| (*gateway, silence(heard)))
            .filter(|(_, silence)| *silence >= GATEWAY_SILENCE)
            .collect();
        for (gateway, silence) in silent {
            if silence >= ADOPTION_WAIT {
                self.remove_gateway(gateway);
            } else if self.silent.insert(gateway) {
                self.orphan(gateway);
            }
        }
        let is_over = |since: Instant| now.saturating_duration_since(since) >= ENDED_WAIT;
        self.entries
            .retain(|_, entry| !entry.ended.is_some_and(is_over));
        self.drop_ended(ENDED_KEPT_MAX);
        let gateways: BTreeSet<_> = self.entries.keys().map(|key| key.0).collect();
        self.heard.retain(|gateway, _| gateways.contains(gateway));
        self.silent.retain(|gateway| gateways.contains(gateway));
    }

    /// Pauses the attempts of a silent gateway that another one can adopt, and cancels the others.
    fn orphan(&mut self, gateway: InstanceId) {
        let before = self.entries.len();
        self.entries.retain(|key, entry| {
            let running = entry.running.as_ref();
            key.0 != gateway || running.is_some_and(|running| running.waits_for_adoption())
        });
        let cancelled = before - self.entries.len();
        self.set_orphaned(gateway, true);
        let kept = self.entries.keys().filter(|key| key.0 == gateway).count();
        match (cancelled, kept) {
            (0, 0) => self.remove_gateway(gateway),
            _ => tracing::warn!(
                %gateway,
                cancelled,
                kept,
                "the gateway is silent: requests are cancelled, and streams kept for another gateway"
            ),
        }
    }

    fn set_orphaned(&mut self, gateway: InstanceId, is_orphaned: bool) {
        let entries = self.entries.iter_mut().filter(|(key, _)| key.0 == gateway);
        for running in entries.filter_map(|(_, entry)| entry.running.as_mut()) {
            running.is_orphaned = is_orphaned;
            running.pause_as_ordered();
        }
    }

    /// Cancels the attempts of a gateway that is gone for good.
    fn remove_gateway(&mut self, gateway: InstanceId) {
        self.entries.retain(|key, _| key.0 != gateway);
        self.heard.remove(&gateway);
        self.silent.remove(&gateway);
    }
}

impl RunningAttempt {
    /// Whether another gateway can adopt the attempt. What is left of one whose other choices were adopted does not wait.
    fn waits_for_adoption(&self) -> bool {
        self.request.origin.is_some() && !self.is_shared()
    }
}
