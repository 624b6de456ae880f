//! Limits of WebSockets.

use std::time::Duration;

/// Limits of WebSockets (`realtime.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealtimeLimits {
    /// Open WebSockets; one more is rejected with 503.
    pub connections_max: usize,
    /// Streams attached to one WebSocket; one more is an error.
    pub streams_max: usize,
    /// Bytes of a message of the client; a longer one closes the connection (1009).
    pub message_bytes_max: usize,
    /// Time without any message, including pongs, after which the connection is closed.
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
