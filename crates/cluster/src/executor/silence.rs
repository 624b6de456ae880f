//! Attempts of gateways that are gone, and attempts that have ended.
//!
//! A gateway that is not heard for [`GATEWAY_SILENCE`] has died, or cannot reach this process: its attempts are cancelled. The
//! gateway that continues a stream submits the stored tokens as a request of its own; one that is heard again finds that its
//! attempts are unknown, and does the same.

use super::attempts::{Attempts, ENDED_KEPT_MAX};
use crate::names::InstanceId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time that an ended attempt is kept for reads.
pub const ENDED_WAIT: Duration = Duration::from_secs(60);
/// A gateway that was not heard for so long is gone: its attempts are cancelled.
pub const GATEWAY_SILENCE: Duration = Duration::from_secs(10);

impl Attempts {
    /// Notes a sign of life of a gateway.
    pub fn hear(&mut self, gateway: InstanceId, now: Instant) {
        if let Some(heard) = self.heard.get_mut(&gateway) {
            *heard = now;
        }
    }

    /// Cancels the attempts of gateways that are gone, and forgets ended attempts after their time.
    pub fn expire(&mut self, now: Instant) {
        let is_over = |since: Instant, wait| now.saturating_duration_since(since) >= wait;
        let heard = self.heard.iter();
        let gone = heard.filter(|(_, heard)| is_over(**heard, GATEWAY_SILENCE));
        let gone: Vec<InstanceId> = gone.map(|(gateway, _)| *gateway).collect();
        for gateway in gone {
            let before = self.entries.len();
            self.entries.retain(|key, _| key.0 != gateway);
            let cancelled = before - self.entries.len();
            tracing::warn!(%gateway, cancelled, "the gateway is silent: its requests are cancelled");
        }
        self.entries.retain(|_, entry| {
            let ended = entry.ended;
            !ended.is_some_and(|ended| is_over(ended, ENDED_WAIT))
        });
        self.drop_ended(ENDED_KEPT_MAX);
        let gateways: BTreeSet<_> = self.entries.keys().map(|key| key.0).collect();
        self.heard.retain(|gateway, _| gateways.contains(gateway));
    }
}
