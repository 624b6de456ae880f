//! Attention over a paged KV cache, with KV splits as in flash-decoding.
//!
//! The positions of a sequence are cut into *KV splits* of about [`KV_SPLIT_SLOTS`] at fixed positions
//! (multiples of whole pages from position 0). Within a split, a query's scores are computed, normalized by a
//! softmax against the maximum of the split, and used to sum the values (PV product); the partial results of a
//! query are then merged in rising order of the splits (partial softmax merge). This arithmetic is fixed:
//! consecutive rows of one sequence form a *query tile* to share the loads of keys and values, and with few
//! tiles and long contexts the splits run on different workers, but the order of each row's additions does not
//! change. So a row's result has the same bits for every batch, every chunking of the prompt and every number
//! of threads (on one level; levels differ by rounding).
//!
//! An attention sink is a score without a value: it is added to the sum of a query's weights after all splits were
//! merged, on every path.
//!
//! With AMX ([`amx`]) that holds separately for rows of short and of long runs: 16 and more consecutive rows
//! (32, where no heads share keys) use another arithmetic than fewer.

#[cfg(target_arch = "x86_64")]
mod amx;
mod dense;
mod int8;
mod reference;
mod schedule;
#[cfg(test)]
mod tests;
mod workspace;

pub use dense::{DENSE_TILE, DenseAttention, DenseShape, DenseSpan};

use crate::kv::{KvBlock, LANES};
use crate::{Isa, KvCache, KvKind, Pool};
use std::ops::Range;
use workspace::{AttentionWorkspace, WorkspaceSize};

/// Computes `out`, of the shape of `q`: `(rows.len(), heads, head_dim)`. A row's result depends on that row's
/// positions only, not on the other rows or on the chunking of the prompt.
///
/// # Panics
/// If the shapes do not match each other, the bounds of `scratch` are exceeded, `isa` differs from the bounds,
/// a block table is too short for its row, or a page has more than [`KV_SPLIT_SLOTS`] positions.
#[expect(clippy::too_many_arguments, reason = "one call, ten inputs")]
pub fn attend(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut AttentionScratch,
    kv: &KvCache,
    layer: usize,
    params: &AttentionParams<'_>,
    rows: &[QueryRow],
    tables: &[u32],
    q: &[f32],
    out: &mut [f32],
) {
    if rows.is_empty() {
        return;
    }
    let call = AttentionCall {
        isa,
        kv,
        layer,
        params,
        rows,
        tables,
        q,
    };
    call.check_shapes(scratch.bounds(), out.len());
    call.run(pool, scratch, out);
}

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

/// Consecutive rows of one sequence, which share a workspace. What they see begins and ends later from row to row.
struct QueryTile {
    rows: Range<usize>,
    /// Whether the rows belong to a run that is long enough for AMX.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AMX"))]
    use_amx: bool,
}

/// The inputs of one `attend`.
struct AttentionCall<'a> {
    isa: Isa,
    kv: &'a KvCache,
    layer: usize,
    params: &'a AttentionParams<'a>,
    rows: &'a [QueryRow],
    tables: &'a [u32],
    q: &'a [f32],
}

impl AttentionCall<'_> {
    /// Multiplications of the whole call.
    fn products(&self) -> usize {
        let visible: usize = self
            .rows
            .iter()
            .map(|row| self.visible_range(row).len())
            .sum();
        2 * visible * self.params.heads * self.head_dim()
    }

    /// Positions that a row sees: at least its own.
    fn visible_range(&self, row: &QueryRow) -> Range<usize> {
        match self.params.window {
            None => 0..row.end,
            Some(window) => {
                let after = row.position.saturating_add(window.after);
                row.position.saturating_sub(window.before)..row.end.min(after.saturating_add(1))
            }
        }
    }

    /// KV splits that the rows of a tile see: the range of the first row starts first, the range of the last
    /// row ends last.
    fn splits(&self, tile: &Range<usize>) -> Range<usize> {
        let (first, last) = (&self.rows[tile.start], &self.rows[tile.end - 1]);
        self.visible_range(first).start / self.split_tokens()
            ..self.visible_range(last).end.div_ceil(self.split_tokens())
    }

    /// Positions of a KV split that a row sees, relative to the start of the split.
    fn visible_in_split(&self, row: usize, split: usize) -> Range<usize> {
        let (visible_range, start) = (
            self.visible_range(&self.rows[row]),
            split * self.split_tokens(),
        );
        let within = |position: usize| position.saturating_sub(start).min(self.split_tokens());
        within(visible_range.start)..within(visible_range.end)
    }

    /// Positions of a KV split that any row of a tile sees, relative to the start of the split.
    fn visible_to_tile(&self, tile: &Range<usize>, split: usize) -> Range<usize> {
        self.visible_in_split(tile.start, split).start
            ..self.visible_in_split(tile.end - 1, split).end
    }

    /// Keys and values of a page of a KV split for a row's sequence.
    fn block(&self, row: usize, head: usize, split: usize, page: usize) -> KvBlock<'_> {
        let table = &self.tables[self.rows[row].pages.clone()];
        let page = table[split * self.split_pages() + page];
        self.kv.block(self.layer, page, head)
    }

    /// Range of a row's query heads of one KV head in `q` and `out`.
    fn query_range(&self, row: usize, head: usize) -> Range<usize> {
        let (dim, group) = (self.head_dim(), self.group_size());
        let start = (row * self.params.heads + head * group) * dim;
        start..start + group * dim
    }

    /// Query heads per KV head (the group of grouped-query attention).
    fn group_size(&self) -> usize {
        self.params.heads / self.kv.shape().kv_heads
    }

    fn head_dim(&self) -> usize {
        self.kv.shape().head_dim
    }

    fn page_tokens(&self) -> usize {
        self.kv.shape().page_tokens
    }

    /// Slots of a page, padding included.
    fn slots(&self) -> usize {
        self.kv.padded().0
    }

    /// Floats of one query's partial result.
    fn partial_len(&self) -> usize {
        self.kv.padded().1 + 2
    }

    /// Whole pages of a KV split.
    fn split_pages(&self) -> usize {
        KV_SPLIT_SLOTS / self.slots()
    }

    /// Positions of a KV split.
    fn split_tokens(&self) -> usize {
        self.split_pages() * self.page_tokens()
    }
}

/// Queries that share loads of keys and values, unless one row has more heads per KV head.
const TILE_QUERIES: usize = 16;

/// With fewer (query tile, KV head) pairs per worker than this, KV splits run on different workers.
const TASKS_PER_WORKER: usize = 4;

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
    fn uses_amx(&self) -> bool {
        self.isa.has_tiles()
    }
}

/// Scratch memory of [`attend`], allocated once.
pub struct AttentionScratch {
    bounds: AttentionBounds,
    /// One per worker.
    workspaces: Vec<AttentionWorkspace>,
    /// Query tiles of a call; at most `rows_max`.
    tiles: Vec<QueryTile>,
    /// Partial results of KV splits, exchanged between workers: `(rows, heads, splits, 2 + elements)`.
    parts: Vec<f32>,
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
