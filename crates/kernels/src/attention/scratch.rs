//! What [`super::attend`] works in, allocated once.

use super::call::Tile;
use super::desk::{Desk, Room};
use super::params::KV_SPLIT_SLOTS;
use crate::kv::LANES;
use crate::{Isa, KvKind};

/// Queries that share loads of keys and values, unless one row has more heads per kv head.
pub(super) const TILE_QUERIES: usize = 16;

/// With fewer than this many (tile, kv head) pairs per worker, spans go to different workers.
pub(super) const TASKS_PER_WORKER: usize = 4;

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
    /// How keys and values are kept.
    pub kind: KvKind,
    /// The level that will be asked for.
    pub isa: Isa,
}

impl AttentionBounds {
    /// Whether runs of many rows are computed with tiles.
    pub(super) fn tiled(&self) -> bool {
        self.isa.has_tiles()
    }
}

/// What [`super::attend`] works in; allocated once.
pub struct AttentionScratch {
    bounds: AttentionBounds,
    /// One per worker.
    pub(super) desks: Vec<Desk>,
    /// Rows that are taken together; at most `rows_max`.
    pub(super) tiles: Vec<Tile>,
    /// Spans' results on their way from one worker to another, `(rows, heads, spans, 2 + elements)`.
    pub(super) parts: Vec<f32>,
}

impl AttentionScratch {
    /// Allocates it.
    pub fn new(bounds: AttentionBounds) -> Self {
        let queries = bounds
            .heads
            .div_ceil(bounds.kv_heads.max(1))
            .max(TILE_QUERIES);
        let elements = bounds.head_dim.next_multiple_of(LANES);
        // More rows than these make tasks enough without cutting them at spans.
        let rows = (bounds.threads * TASKS_PER_WORKER).div_ceil(bounds.kv_heads.max(1));
        let spans = bounds.context_max.div_ceil(KV_SPLIT_SLOTS);
        let cut = bounds.threads > 1 && spans > 1;
        let parts = rows.min(bounds.rows_max) * bounds.heads * spans * (elements + 2);
        let room = Room {
            queries,
            coded: bounds.kind == KvKind::Q8_0,
            tiled: bounds.tiled(),
        };
        Self {
            bounds,
            desks: (0..bounds.threads)
                .map(|_| Desk::new(room, bounds.head_dim, elements))
                .collect(),
            tiles: Vec::with_capacity(bounds.rows_max),
            parts: vec![0.0; if cut { parts } else { 0 }],
        }
    }

    /// What it has room for.
    pub fn bounds(&self) -> &AttentionBounds {
        &self.bounds
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        let desks: usize = self.desks.iter().map(Desk::bytes).sum();
        desks + self.tiles.capacity() * size_of::<Tile>() + self.parts.len() * size_of::<f32>()
    }
}
