//! Settings of named streams.

use std::time::Duration;
use stream::RegistryLimits;

/// Bounds of named streams (`streams.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Streams open at one time, detached ones included; beyond the limit a request is rejected with 503.
    pub open_max: usize,
    /// How long a resumable stream can be read again after the end. Other streams are removed at the end.
    pub retention: Duration,
    /// Ended streams kept at one time; the oldest end makes room.
    pub retained_max: usize,
    /// Bytes of log segments the ended streams kept may hold; the oldest end makes room.
    pub retention_bytes: usize,
    /// Tokens that a detached stream may generate beyond the credit window, per choice and once.
    pub detached_tokens: u64,
    /// How long a detached stream may wait for credit before the stream is canceled.
    pub detached_wait: Duration,
    /// Ids of removed streams that are remembered, so that a request for one is answered with 410.
    pub gone_max: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            open_max: 4096,
            retention: Duration::from_secs(60),
            retained_max: 1024,
            retention_bytes: 32 << 20,
            detached_tokens: 16_384,
            detached_wait: Duration::from_secs(60),
            gone_max: 8192,
        }
    }
}

impl StreamLimits {
    pub(crate) fn of_registry(&self) -> RegistryLimits {
        RegistryLimits {
            open_max: self.open_max,
            retained_max: self.retained_max,
            retained_bytes_max: self.retention_bytes,
            retention: self.retention,
            gone_max: self.gone_max,
        }
    }
}
