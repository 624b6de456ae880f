//! Inputs of one attention call, and the positions of rows, KV splits and pages.

use super::params::{AttentionParams, KV_SPLIT_SLOTS, QueryRow};
use crate::kv::KvBlock;
use crate::{Isa, KvCache};
use std::ops::Range;

/// Consecutive rows of one sequence, which share a workspace. What they see begins and ends later from row to row.
pub(super) struct QueryTile {
    pub(super) rows: Range<usize>,
    /// Whether the rows belong to a run that is long enough for AMX.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AMX"))]
    pub(super) use_amx: bool,
}

/// The inputs of one `attend`.
pub(super) struct AttentionCall<'a> {
    pub(super) isa: Isa,
    pub(super) kv: &'a KvCache,
    pub(super) layer: usize,
    pub(super) params: &'a AttentionParams<'a>,
    pub(super) rows: &'a [QueryRow],
    pub(super) tables: &'a [u32],
    pub(super) q: &'a [f32],
}

impl AttentionCall<'_> {
    /// Multiplications of the whole call.
    pub(super) fn products(&self) -> usize {
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
    pub(super) fn splits(&self, tile: &Range<usize>) -> Range<usize> {
        let (first, last) = (&self.rows[tile.start], &self.rows[tile.end - 1]);
        self.visible_range(first).start / self.split_tokens()
            ..self.visible_range(last).end.div_ceil(self.split_tokens())
    }

    /// Positions of a KV split that a row sees, relative to the start of the split.
    pub(super) fn visible_in_split(&self, row: usize, split: usize) -> Range<usize> {
        let (visible_range, start) = (
            self.visible_range(&self.rows[row]),
            split * self.split_tokens(),
        );
        let within = |position: usize| position.saturating_sub(start).min(self.split_tokens());
        within(visible_range.start)..within(visible_range.end)
    }

    /// Positions of a KV split that any row of a tile sees, relative to the start of the split.
    pub(super) fn visible_to_tile(&self, tile: &Range<usize>, split: usize) -> Range<usize> {
        self.visible_in_split(tile.start, split).start
            ..self.visible_in_split(tile.end - 1, split).end
    }

    /// Keys and values of a page of a KV split for a row's sequence.
    pub(super) fn block(&self, row: usize, head: usize, split: usize, page: usize) -> KvBlock<'_> {
        let table = &self.tables[self.rows[row].pages.clone()];
        let page = table[split * self.split_pages() + page];
        self.kv.block(self.layer, page, head)
    }

    /// Range of a row's query heads of one KV head in `q` and `out`.
    pub(super) fn query_range(&self, row: usize, head: usize) -> Range<usize> {
        let (dim, group) = (self.head_dim(), self.group_size());
        let start = (row * self.params.heads + head * group) * dim;
        start..start + group * dim
    }

    /// Query heads per KV head (the group of grouped-query attention).
    pub(super) fn group_size(&self) -> usize {
        self.params.heads / self.kv.shape().kv_heads
    }

    pub(super) fn head_dim(&self) -> usize {
        self.kv.shape().head_dim
    }

    pub(super) fn page_tokens(&self) -> usize {
        self.kv.shape().page_tokens
    }

    /// Slots of a page, padding included.
    pub(super) fn slots(&self) -> usize {
        self.kv.padded().0
    }

    /// Floats of one query's partial result.
    pub(super) fn partial_len(&self) -> usize {
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
