//! Bounds and intervals of the records in JetStream.

use std::time::Duration;

/// Bytes of records in one message. A NATS server takes 1 MiB by default.
pub(super) const RECORDS_BYTES_MAX: usize = 512 << 10;

/// Settings of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsConfig {
    /// Bytes of records that are not stored yet, of all streams: 15 s at 4 MiB/s, or 300,000 tokens a second.
    /// One stream that is written once more may exceed the bound.
    pub behind_bytes: usize,
    /// Shortest time between two messages of a stream.
    pub batch_interval: Duration,
    /// How many servers store each message; 1, 3 or 5.
    pub replicas: usize,
    /// Bytes of all streams in JetStream.
    pub store_bytes: u64,
    /// Age at which JetStream removes messages that no owner has purged. Streams that live are written once more at half
    /// of it.
    pub age_max: Duration,
}

impl Default for RecordsConfig {
    fn default() -> Self {
        Self {
            behind_bytes: 64 << 20,
            batch_interval: Duration::from_millis(50),
            replicas: 1,
            store_bytes: 4 << 30,
            age_max: Duration::from_secs(24 * 3600),
        }
    }
}
