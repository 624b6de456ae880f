//! What to measure, and why nothing was.

use kernels::KvKind;
use std::fmt;

/// Bounds of what may be asked for; each keeps a slip from asking for hours or for all memory.
pub const TOKENS_MAX: usize = 1 << 20;
/// Sequences decoded together.
pub const BATCH_MAX: usize = 4096;
/// Times everything is measured.
pub const ROUNDS_MAX: usize = 1000;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Tokens of the prompt whose computation is timed; 0: no such test.
    pub prompt: usize,
    /// Tokens that each sequence decodes in a timed test; 0: no such test.
    pub generate: usize,
    /// Sequences that decode together.
    pub batches: Vec<usize>,
    /// Positions that are filled before a test begins.
    pub contexts: Vec<usize>,
    /// Times everything is measured; medians are reported.
    pub rounds: usize,
    /// Threads that compute.
    pub threads: usize,
    /// How keys and values are kept.
    pub kv: KvKind,
    /// Bytes of keys and values at most; tests that need more are named and left out.
    pub kv_bytes_max: u64,
}

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedError(pub String);

impl fmt::Display for SpeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpeedError {}

impl SpeedError {
    pub(super) fn of(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}
