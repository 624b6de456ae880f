//! Numbers of a writer for metrics.

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterCounts {
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Frames written since the start.
    pub frames: u64,
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Writes, syncs and removals that failed.
    pub errors: u64,
    /// Batches that were dropped.
    pub dropped_batches: u64,
    /// Streams that were rewritten.
    pub rewritten_streams: u64,
}

/// Present sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterSizes {
    /// Segments on the disk.
    pub segments: usize,
    /// Their bytes, without the reserve.
    pub bytes: u64,
    /// Bytes of live streams' records.
    pub live_bytes: u64,
    /// Live streams.
    pub streams: usize,
    /// Live streams with missing records.
    pub gaps: usize,
}
