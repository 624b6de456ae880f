//! Options and errors of a speed measurement.

use kernels::KvKind;
use std::fmt;

/// Largest prompt and context of a test. This and the next bounds keep a typing error from requesting hours or
/// all memory.
pub const TOKENS_MAX: usize = 1 << 20;
/// Most sequences of a decode batch.
pub const BATCH_MAX: usize = 4096;
/// Most rounds.
pub const ROUNDS_MAX: usize = 1000;

/// Options of a speed measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedOptions {
    /// Prompt tokens of a prefill test; 0 for no prefill tests.
    pub prompt: usize,
    /// Decode steps of a decode test; 0 for no decode tests.
    pub generate: usize,
    /// Batch sizes of decode tests.
    pub batches: Vec<usize>,
    /// Context lengths before a test begins.
    pub contexts: Vec<usize>,
    /// Repetitions of all tests; medians are reported.
    pub rounds: usize,
    /// Kernel threads.
    pub threads: usize,
    /// Storage format of the KV cache.
    pub kv: KvKind,
    /// Limit of the KV cache in bytes; tests that need more are skipped and reported.
    pub kv_bytes_max: u64,
}

/// The measurement could not run.
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
