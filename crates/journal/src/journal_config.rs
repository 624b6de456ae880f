//! Sizes and times of a journal.

use crate::record::BATCH_BYTES_MAX;
use std::time::Duration;

/// Smallest segment: the headers of 128 segments fit into one.
const SEGMENT_BYTES_MIN: u64 = 16 << 10;

/// Settings of a journal.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Bytes after which a new segment begins; between a 128th and an eighth of `bytes_max`. One frame with a large
    /// record may exceed them.
    pub segment_bytes: u64,
    /// Bytes of all segments and the reserve.
    pub bytes_max: u64,
    /// Time between two syncs; zero means that records are acknowledged after they were synced, otherwise after they
    /// were written.
    pub sync_interval: Duration,
    /// Bytes kept on the disk for the ends of streams while the disk is full.
    pub reserve_bytes: u64,
    /// Bytes of records after which a frame is written without waiting for a commit; at most
    /// [`BATCH_BYTES_MAX`](crate::BATCH_BYTES_MAX).
    pub batch_bytes: usize,
    /// Memory for streams that are rebuilt.
    pub recovery_bytes_max: usize,
    /// Shortest time between the beginnings of two turns of a [`JournalThread`](crate::JournalThread), so that records of
    /// a busy server share a write. The first record after a quiet time does not wait.
    pub turn_interval: Duration,
    /// Streams at a time; further ones are not durable.
    pub streams_max: usize,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            bytes_max: 1 << 30,
            sync_interval: Duration::from_millis(100),
            reserve_bytes: 1 << 20,
            batch_bytes: BATCH_BYTES_MAX,
            recovery_bytes_max: 1 << 30,
            turn_interval: Duration::from_micros(500),
            streams_max: 65_536,
        }
    }
}

impl JournalConfig {
    /// Bytes of a segment, so that at least 8 and at most 128 fit.
    pub fn segment_bytes_bounded(&self) -> u64 {
        self.segment_bytes
            .clamp(self.bytes_max / 128, self.bytes_max / 8)
            .max(SEGMENT_BYTES_MIN)
    }

    /// Most bytes of live streams: twice as many and two segments are within `bytes_max`, so that the live streams can
    /// always be rewritten.
    pub fn live_bytes_max(&self) -> u64 {
        let fixed = 2 * self.segment_bytes_bounded() + self.reserve_bytes;
        self.bytes_max.saturating_sub(fixed) / 2
    }
}
