//! What the operator chose about WebSockets.

use std::time::Duration;

/// Bounds of WebSockets (`realtime.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealtimeLimits {
    /// WebSockets open at one time; one more is told 503.
    pub connections_max: usize,
    /// Streams one of them may follow at one time; one more is an error.
    pub streams_max: usize,
    /// Bytes of a client's message; a longer one ends the connection (1009).
    pub message_bytes_max: usize,
    /// A client nothing came from for this long, not even the answer to a ping, is gone.
    pub idle: Duration,
}

impl Default for RealtimeLimits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            streams_max: 64,
            message_bytes_max: 1 << 20,
            idle: Duration::from_secs(60),
        }
    }
}
