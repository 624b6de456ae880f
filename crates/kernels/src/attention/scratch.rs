//! Scratch memory of [`super::attend`], allocated once.

use super::call::QueryTile;
use super::params::KV_SPLIT_SLOTS;
use super::workspace::{AttentionWorkspace, WorkspaceSize};
use crate::kv::LANES;
use crate::{Isa, KvKind};

/// Queries that share loads of keys and values, unless one row has more heads per KV head.
pub(super) const TILE_QUERIES: usize = 16;

/// With fewer (query tile, KV head) pairs per worker than this, KV splits run on different workers.
pub(super) const TASKS_PER_WORKER: usize = 4;

/// Capacity of an [`AttentionScratch`].
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
    /// Storage of keys and values.
    pub kind: KvKind,
    /// Instruction set of the calls.
    pub isa: Isa,
}

impl AttentionBounds {
    /// Whether runs of many rows use AMX.
    pub(super) fn uses_amx(&self) -> bool {
        self.isa.has_tiles()
    }
}

/// Scratch memory of [`super::attend`], allocated once.
pub struct AttentionScratch {
    bounds: AttentionBounds,
    /// One per worker.
    pub(super) workspaces: Vec<AttentionWorkspace>,
    /// Query tiles of a call; at most `rows_max`.
    pub(super) tiles: Vec<QueryTile>,
    /// Partial results of KV splits, exchanged between workers: `(rows, heads, splits, 2 + elements)`.
    pub(super) parts: Vec<f32>,
}

impl AttentionScratch {
    /// Allocates the scratch memory.
    pub fn new(bounds: AttentionBounds) -> Self {
        let queries = bounds
            .heads
            .div_ceil(bounds.kv_heads.max(1))
            .max(TILE_QUERIES);
        let elements = bounds.head_dim.next_multiple_of(LANES);
        // More rows than these have enough tasks without KV splits.
        let rows = (bounds.threads * TASKS_PER_WORKER).div_ceil(bounds.kv_heads.max(1));
        let splits = bounds.context_max.div_ceil(KV_SPLIT_SLOTS);
        let cut = bounds.threads > 1 && splits > 1;
        let parts = rows.min(bounds.rows_max) * bounds.heads * splits * (elements + 2);
        let size = WorkspaceSize {
            queries,
            kind: bounds.kind,
            amx: bounds.uses_amx(),
        };
        Self {
            bounds,
            workspaces: (0..bounds.threads)
                .map(|_| AttentionWorkspace::new(size, bounds.head_dim, elements))
                .collect(),
            tiles: Vec::with_capacity(bounds.rows_max),
            parts: vec![0.0; if cut { parts } else { 0 }],
        }
    }

    /// The capacity.
    pub fn bounds(&self) -> &AttentionBounds {
        &self.bounds
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        let workspaces: usize = self.workspaces.iter().map(AttentionWorkspace::bytes).sum();
        workspaces
            + self.tiles.capacity() * size_of::<QueryTile>()
            + self.parts.len() * size_of::<f32>()
    }
}
