//! Times and bounds of a relay.

use crate::placement::PlacementPolicy;
use std::time::Duration;

/// Times and bounds of a relay.
#[derive(Clone, Copy, Debug)]
pub struct RelayConfig {
    /// Which engine gets a request.
    pub placement: PlacementPolicy,
    /// Time between two credit orders of a gateway.
    pub credit_every: Duration,
    /// Time after which an order that was not acknowledged is sent again.
    pub order_repeat: Duration,
    /// A request of which nothing was heard for this time is read.
    pub silence: Duration,
    /// Time after which an unanswered read is sent again.
    pub read_repeat: Duration,
    /// An engine that answered no read of a request for this time has lost the request.
    pub silence_max: Duration,
    /// Time for the answer to a request that was sent.
    pub reply_wait: Duration,
    /// Pause before a request that all engines rejected is offered again.
    pub retry: Duration,
    /// Time that a request waits for an engine before the first token, or after an engine's death.
    pub unplaced_max: Duration,
    /// Time after a reconnection in which no engine counts as dead.
    pub reconnect_grace: Duration,
    /// Engines that may die with a request, without a token in between, before the request fails.
    pub crashes_max: u32,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            placement: PlacementPolicy::default(),
            credit_every: Duration::from_millis(20),
            order_repeat: Duration::from_millis(200),
            silence: Duration::from_millis(500),
            read_repeat: Duration::from_secs(1),
            silence_max: Duration::from_secs(6),
            reply_wait: Duration::from_secs(10),
            retry: Duration::from_millis(100),
            unplaced_max: Duration::from_secs(60),
            reconnect_grace: Duration::from_secs(2),
            crashes_max: 3,
        }
    }
}
