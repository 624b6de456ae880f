//! The clocks that run while the engine has a request (section `clocks`, and `backpressure` for the
//! reader's). Waiting for a permit is `queue.timeout`'s.

use engine::{Clocks, Policy};
use std::time::Duration;

/// When a request has taken too long. `None` = never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamClocks {
    /// From the start in the engine to the first token.
    pub first_token: Option<Duration>,
    /// From one token to the next, while the sequence is not parked.
    pub idle: Option<Duration>,
    /// From arrival to end.
    pub total: Option<Duration>,
    /// How long a stream may be parked because the reader takes nothing (`backpressure.ack_timeout_ms`).
    pub reader: Option<Duration>,
    /// Consequence of `reader` (`backpressure.policy`). A resumable stream is never canceled: with both `Cancel`
    /// and `Detach` the stream continues as if the client had disconnected.
    pub policy: Policy,
}

impl StreamClocks {
    /// The engine's timeouts. The engine's queue is short: queue time is spent in admission.
    pub fn of_engine(self) -> Clocks {
        Clocks {
            queue: None,
            first_token: self.first_token,
            idle: self.idle,
            total: self.total,
            reader: self.reader,
        }
    }
}

impl StreamClocks {
    /// Whether a plain stream can become a resumable one.
    pub(crate) fn detaches(&self) -> bool {
        self.policy == Policy::Detach && self.reader.is_some()
    }

    /// How long a reader may take nothing before the detached driver revokes the reader's credit.
    pub(crate) fn reader_patience(&self) -> Option<Duration> {
        self.reader.filter(|_| self.policy != Policy::Keep)
    }
}

impl Default for StreamClocks {
    fn default() -> Self {
        Self {
            first_token: Some(Duration::from_secs(30 * 60)),
            idle: Some(Duration::from_secs(30 * 60)),
            total: Some(Duration::from_secs(6 * 3600)),
            reader: Some(Duration::from_secs(30)),
            policy: Policy::Cancel,
        }
    }
}
