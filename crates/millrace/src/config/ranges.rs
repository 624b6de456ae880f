//! Ends of ranges that several settings have.

/// Items that each take memory.
pub(super) const COUNT_MAX: u64 = 1 << 20;
/// Milliseconds of a pause or a timeout.
pub(super) const PAUSE_MS_MIN: u64 = 10;
pub(super) const HOUR_MS: u64 = 3_600_000;
pub(super) const WEEK_MS: u64 = 604_800_000;
pub(super) const DAY_S: u64 = 86_400;
/// Holds the longest description of a stream (8 MiB) next to live streams.
pub(super) const JOURNAL_BYTES_MIN: u64 = 32 << 20;
/// Tokens of one sequence.
pub(super) const TOKENS_MAX: u64 = 1 << 24;
