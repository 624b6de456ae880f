//! Bounds of a registry, and the error when one is reached.

use std::time::Duration;

/// Bounds of a registry. An entry takes at most 400 bytes beside the payload, a remembered id at most 160;
/// tables do not shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryLimits {
    /// Most open streams.
    pub open_max: usize,
    /// Most retained streams.
    pub retained_max: usize,
    /// Most bytes of retained streams, as reported at their ends.
    pub retained_bytes_max: usize,
    /// Retention time of ended streams.
    pub retention: Duration,
    /// Remembered ids of removed entries, so that a request for one can be answered with "gone".
    pub gone_max: usize,
}

/// The maximum number of streams is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryFull {
    /// The limit of open streams.
    pub open_max: usize,
}

impl std::fmt::Display for RegistryFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} streams are open, as many as may be", self.open_max)
    }
}

impl std::error::Error for RegistryFull {}
