//! What a model says of its attention, and the rows that are asked about.

use std::ops::Range;

/// Slots of a split, and so the most that a page may have.
pub const KV_SPLIT_SLOTS: usize = 512;

/// What differs between models and layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Query heads; a multiple of the cache's `kv_heads`.
    pub heads: usize,
    /// Multiplied into the scores.
    pub scale: f32,
    /// `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// A query sees the last `window` positions, its own included.
    pub window: Option<usize>,
}

/// One query row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRow {
    /// Its position; it sees `0..=position` (or the window's part of that).
    pub position: usize,
    /// Where its block table is in `tables`.
    pub pages: Range<usize>,
}
