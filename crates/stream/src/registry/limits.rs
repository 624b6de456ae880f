//! The bounds of a registry, and what it says when one is reached.

use std::time::Duration;

/// The bounds of a registry. An entry costs at most 400 bytes beside its payload, a remembered id
/// at most 160; tables that have grown stay so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryLimits {
    /// Streams that may be open at one time.
    pub open_max: usize,
    /// Ended streams kept for re-reading.
    pub retained_max: usize,
    /// Bytes the ended streams kept may have, as told when they ended.
    pub retained_bytes_max: usize,
    /// How long an ended stream is kept.
    pub retention: Duration,
    /// Ids remembered of entries that are gone, so that who asks for one hears that it *was* here.
    pub gone_max: usize,
}

/// As many streams are open as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryFull {
    /// Streams that may be open at one time.
    pub open_max: usize,
}

impl std::fmt::Display for RegistryFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} streams are open, as many as may be", self.open_max)
    }
}

impl std::error::Error for RegistryFull {}
