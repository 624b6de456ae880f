//! Attention over paged KV. (Stub.)

use crate::{Isa, KvCache, Pool};
use std::ops::Range;

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

/// What [`AttentionScratch`] must have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionBounds {
    /// Workers of the pool.
    pub threads: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rows of the largest batch.
    pub rows_max: usize,
    /// Positions of the longest sequence.
    pub context_max: usize,
}

/// What [`attend`] works in; allocated once.
pub struct AttentionScratch {
    _bounds: AttentionBounds,
}

impl AttentionScratch {
    /// Allocates it.
    pub fn new(bounds: AttentionBounds) -> Self {
        Self { _bounds: bounds }
    }
    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        todo!()
    }
}

/// `q` and `out` are `(rows.len(), heads, head_dim)`. Each row's result depends on that row's
/// positions only: not on its batch-mates, not on how the prompt was cut into chunks.
#[expect(clippy::too_many_arguments, reason = "one call, ten inputs")]
pub fn attend(
    _isa: Isa,
    _pool: &mut Pool,
    _scratch: &mut AttentionScratch,
    _kv: &KvCache,
    _layer: usize,
    _params: &AttentionParams,
    _rows: &[QueryRow],
    _tables: &[u32],
    _q: &[f32],
    _out: &mut [f32],
) {
    todo!()
}
