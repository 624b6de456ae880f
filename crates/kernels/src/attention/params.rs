//! Attention parameters of a model, and query rows.

use std::ops::Range;

/// Slots of a KV split, and most slots of a page.
pub const KV_SPLIT_SLOTS: usize = 512;

/// Attention parameters, which differ between models and layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams<'a> {
    /// Query heads; a multiple of the cache's `kv_heads`.
    pub heads: usize,
    /// Multiplied into the scores.
    pub scale: f32,
    /// `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// A query sees the last `window` positions, its own included.
    pub window: Option<usize>,
    /// Attention sinks: a score for each query head that takes part in the softmax and has no value.
    pub sinks: Option<&'a [f32]>,
}

/// One query row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRow {
    /// Position of the query; `0..=position` is visible, or the window's part of that range.
    pub position: usize,
    /// Range of the row's block table in `tables`.
    pub pages: Range<usize>,
}
