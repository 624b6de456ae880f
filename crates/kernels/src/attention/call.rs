//! The inputs of one call, and where its rows, spans and pages are.

use super::params::{AttentionParams, QueryRow, KV_SPLIT_SLOTS};
use crate::kv::Block;
use crate::{Isa, KvCache};
use std::ops::Range;

/// Consecutive rows at consecutive positions of one sequence, which share a desk.
pub(super) struct Tile {
    pub(super) rows: Range<usize>,
    /// Whether they are of so long a run that the processor's tiles take them.
    pub(super) many: bool,
}

/// The inputs of one `attend`.
pub(super) struct Call<'a> {
    pub(super) isa: Isa,
    pub(super) kv: &'a KvCache,
    pub(super) layer: usize,
    pub(super) params: &'a AttentionParams,
    pub(super) rows: &'a [QueryRow],
    pub(super) tables: &'a [u32],
    pub(super) q: &'a [f32],
}

impl Call<'_> {
    /// Multiplications of the whole call.
    pub(super) fn products(&self) -> usize {
        let seen: usize = self.rows.iter().map(|row| self.sight(row).len()).sum();
        2 * seen * self.params.heads * self.head_dim()
    }

    /// Positions that a row sees: at least its own.
    fn sight(&self, row: &QueryRow) -> Range<usize> {
        let end = row.position + 1;
        let window = self.params.window.map_or(end, |window| window.max(1));
        end.saturating_sub(window)..end
    }

    /// Spans that the rows of a tile see. The first row sees furthest back, the last furthest ahead.
    pub(super) fn spans(&self, tile: &Range<usize>) -> Range<usize> {
        let (first, last) = (&self.rows[tile.start], &self.rows[tile.end - 1]);
        self.sight(first).start / self.span_tokens()
            ..self.sight(last).end.div_ceil(self.span_tokens())
    }

    /// What a row sees of a span, counted from the span's start.
    pub(super) fn seen(&self, row: usize, span: usize) -> Range<usize> {
        let (sight, start) = (self.sight(&self.rows[row]), span * self.span_tokens());
        let within = |position: usize| position.saturating_sub(start).min(self.span_tokens());
        within(sight.start)..within(sight.end)
    }

    /// What any row of a tile sees of a span, counted from the span's start.
    pub(super) fn seen_by_tile(&self, tile: &Range<usize>, span: usize) -> Range<usize> {
        self.seen(tile.start, span).start..self.seen(tile.end - 1, span).end
    }

    /// Keys and values of a span's page (counted from the span's start) for a row's sequence.
    pub(super) fn block(&self, row: usize, head: usize, span: usize, page: usize) -> Block<'_> {
        let table = &self.tables[self.rows[row].pages.clone()];
        let page = table[span * self.span_pages() + page];
        self.kv.block(self.layer, page, head)
    }

    /// Where a row's heads of one kv head are in `q` and `out`.
    pub(super) fn place(&self, row: usize, head: usize) -> Range<usize> {
        let (dim, group) = (self.head_dim(), self.group());
        let start = (row * self.params.heads + head * group) * dim;
        start..start + group * dim
    }

    /// Query heads per kv head.
    pub(super) fn group(&self) -> usize {
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

    /// Floats that one query's span is laid down in.
    pub(super) fn laid_len(&self) -> usize {
        self.kv.padded().1 + 2
    }

    /// Whole pages of a span.
    fn span_pages(&self) -> usize {
        KV_SPLIT_SLOTS / self.slots()
    }

    /// Positions of a span.
    fn span_tokens(&self) -> usize {
        self.span_pages() * self.page_tokens()
    }
}
