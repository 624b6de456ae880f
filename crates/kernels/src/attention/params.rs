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
    /// The positions around its own that a query sees; `None`: all.
    pub window: Option<Window>,
    /// Attention sinks: a score for each query head that takes part in the softmax and has no value.
    pub sinks: Option<&'a [f32]>,
}

/// A sliding window of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Visible positions before the query's own.
    pub before: usize,
    /// Visible positions after the query's own, as far as there are any.
    pub after: usize,
}

impl Window {
    /// The last `positions` positions, the query's own included.
    pub fn last(positions: usize) -> Self {
        Self {
            before: positions.saturating_sub(1),
            after: 0,
        }
    }

    /// Half of `positions` on either side of the query's own.
    pub fn around(positions: usize) -> Self {
        Self {
            before: positions / 2,
            after: positions / 2,
        }
    }
}

/// One query row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRow {
    /// Position of the query.
    pub position: usize,
    /// Positions that the query may see: `0..end`, or the window's part of that range. Above `position`.
    pub end: usize,
    /// Range of the row's block table in `tables`.
    pub pages: Range<usize>,
}
