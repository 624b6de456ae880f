//! One worker's place: the queries of a tile against one span, and the fold of spans.

use super::call::{Call, Tile};
use super::codes::{self, QueryTable};
use super::params::KV_SPLIT_SLOTS;
use super::scalar;
use super::share::Share;
#[cfg(target_arch = "x86_64")]
use super::tiled::{PAIR_QUERIES, QUERIES_MAX, Tiled};
use crate::KvKind;
use crate::arch::prefetch::prefetch;
use crate::dispatch::by_isa;
use crate::kv::{Block, Codes};
use crate::layout::attention::QueryCodes;
use std::ops::Range;

/// Buffers for one tile and one kv head. `elements` is `head_dim` with padding.
pub(super) struct Desk {
    elements: usize,
    /// Scaled, `(queries, head_dim)`.
    queries: Vec<f32>,
    /// The same as whole numbers, where keys are.
    codes: QueryTable,
    /// Scores, then weights of one span, `(queries, KV_SPLIT_SLOTS)`.
    scores: Vec<f32>,
    /// One span's result.
    part: Share,
    /// The spans folded so far.
    whole: Share,
    /// What tiles need, where they are used.
    #[cfg(target_arch = "x86_64")]
    tiled: Option<Tiled>,
}

/// How many queries a desk is for.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) queries: usize,
    /// Whether keys are of 8 bits.
    pub(super) coded: bool,
    /// Whether tiles are used, which take more at a time.
    pub(super) tiled: bool,
}

impl Desk {
    /// `elements` is `head_dim` with padding.
    pub(super) fn new(room: Room, head_dim: usize, elements: usize) -> Self {
        let queries = room.queries;
        #[cfg(target_arch = "x86_64")]
        let (tiled, shared) = if room.tiled {
            let many = queries.max(QUERIES_MAX).next_multiple_of(PAIR_QUERIES);
            (Some(Tiled::new(many, head_dim, elements)), many)
        } else {
            (None, queries)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let shared = queries;
        let coded = if room.coded { queries } else { 0 };
        Self {
            elements,
            queries: vec![0.0; queries * head_dim],
            codes: QueryTable::new(coded, elements),
            scores: vec![0.0; queries * KV_SPLIT_SLOTS],
            part: Share::new(shared, elements),
            whole: Share::new(shared, elements),
            #[cfg(target_arch = "x86_64")]
            tiled,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let floats = self.queries.len() + self.scores.len();
        #[cfg(target_arch = "x86_64")]
        let tiled = self.tiled.as_ref().map_or(0, Tiled::bytes);
        #[cfg(not(target_arch = "x86_64"))]
        let tiled = 0;
        let shares = self.part.bytes() + self.whole.bytes();
        floats * size_of::<f32>() + shares + self.codes.bytes() + tiled
    }

    /// Takes the queries of a tile for one kv head, scaled.
    pub(super) fn take(&mut self, call: &Call<'_>, tile: &Tile, head: usize) {
        let Tile { rows: tile, many } = tile;
        #[cfg(target_arch = "x86_64")]
        if let Some(tiled) = self.tiled.as_mut().filter(|_| *many) {
            return tiled.take(call, tile, head);
        }
        let from = tile.clone().flat_map(|row| &call.q[call.place(row, head)]);
        for (to, from) in self.queries.iter_mut().zip(from) {
            *to = from * call.params.scale;
        }
        if call.kv.shape().kind == KvKind::Q8_0 {
            let dim = call.head_dim();
            let queries = tile.len() * call.group();
            self.codes.take(&self.queries[..queries * dim], dim);
        }
    }

    /// Computes `part` for the taken queries against one span. `steps` is how far it is to the span that
    /// this worker takes next, whose keys are asked for meanwhile.
    pub(super) fn work(
        &mut self,
        call: &Call<'_>,
        tile: &Tile,
        head: usize,
        (span, steps): (usize, usize),
    ) {
        let Tile { rows: tile, many } = tile;
        #[cfg(target_arch = "x86_64")]
        if let Some(tiled) = self.tiled.as_mut().filter(|_| *many) {
            return tiled.work(call, tile, head, span, &mut self.part);
        }
        self.work_row_by_row(call, tile, head, (span, steps));
    }

    /// As [`Self::work`], a query at a time.
    fn work_row_by_row(
        &mut self,
        call: &Call<'_>,
        tile: &Range<usize>,
        head: usize,
        (span, steps): (usize, usize),
    ) {
        let group = call.group();
        let seen = call.seen_by_tile(tile, span);
        let is_cold = span < call.spans(tile).start + steps;
        self.score(call, tile, head, (span, is_cold), &seen);
        for (query, row) in tile
            .clone()
            .flat_map(|row| (0..group).map(move |_| row))
            .enumerate()
        {
            let seen = call.seen(row, span);
            (self.part.max[query], self.part.sum[query]) = self.soften(call, query, &seen);
        }
        self.part.values[..tile.len() * group * self.elements].fill(0.0);
        // Positions that all rows see are weighed together, the ragged ends row by row: a row must
        // not touch what it does not see, not even with weight zero (zero times infinity).
        let all = tile
            .clone()
            .map(|row| call.seen(row, span))
            .reduce(|a, b| a.start.max(b.start)..a.end.min(b.end));
        let all = all
            .filter(|all| !all.is_empty())
            .unwrap_or(seen.end..seen.end);
        let rows = || tile.clone().map(|row| (row, call.seen(row, span)));
        let queries_of = |row: usize| (row - tile.start) * group..(row - tile.start + 1) * group;
        for (row, seen) in rows() {
            let part = seen.start..all.start.min(seen.end);
            self.weigh(call, (row, head, span), queries_of(row), part, None);
        }
        let next = (span + steps < call.spans(tile).end).then_some(span + steps);
        let next = next.map(|next| (next, call.seen_by_tile(tile, next)));
        let queries = 0..tile.len() * group;
        self.weigh(
            call,
            (tile.start, head, span),
            queries,
            all.clone(),
            next.as_ref(),
        );
        for (row, seen) in rows() {
            let part = all.end.min(seen.end)..seen.end;
            self.weigh(call, (row, head, span), queries_of(row), part, None);
        }
    }

    /// Raw scores of all queries for the pages that hold `seen` (counted from the span's start).
    fn score(
        &mut self,
        call: &Call<'_>,
        tile: &Range<usize>,
        head: usize,
        (span, is_cold): (usize, bool),
        seen: &Range<usize>,
    ) {
        let (dim, slots) = (call.head_dim(), call.slots());
        let count = tile.len() * call.group();
        let last = (seen.end - 1) / call.page_tokens();
        for page in seen.start / call.page_tokens()..=last {
            let block = call.block(tile.start, head, span, page);
            // Pages lie anywhere, so the processor cannot guess the next one.
            if is_cold {
                prefetch(
                    call.block(tile.start, head, span, (page + 1).min(last))
                        .key_memory(),
                );
            }
            let ahead = block.value_memory();
            let scores_at = &mut self.scores[page * slots..];
            match block {
                Block::F16 { keys, .. } => {
                    let queries = &self.queries[..count * dim];
                    scores(call.isa, queries, dim, keys, scores_at, KV_SPLIT_SLOTS, ahead);
                }
                Block::Q8 { keys, .. } => {
                    let queries = self.codes.head(count);
                    scores_of_codes(call.isa, queries, keys, scores_at, KV_SPLIT_SLOTS, ahead);
                }
            }
        }
    }

    /// Weights of one query for the positions it sees; its largest score and the weights' sum.
    fn soften(&mut self, call: &Call<'_>, query: usize, seen: &Range<usize>) -> (f32, f32) {
        if seen.is_empty() {
            return (f32::NEG_INFINITY, 0.0);
        }
        let (tokens, slots) = (call.page_tokens(), call.slots());
        let slot_of = |position: usize| position / tokens * slots + position % tokens;
        let (first, last) = (slot_of(seen.start), slot_of(seen.end - 1));
        let start = first / crate::kv::LANES * crate::kv::LANES;
        let end = (last + 1).next_multiple_of(crate::kv::LANES);
        let scores = &mut self.scores[query * KV_SPLIT_SLOTS..][..end];
        if let Some(cap) = call.params.softcap {
            crate::softcap(call.isa, &mut scores[start..], cap);
        }
        scores[start..first].fill(f32::NEG_INFINITY);
        scores[last + 1..].fill(f32::NEG_INFINITY);
        if tokens != slots {
            for page in first / slots..last / slots {
                scores[page * slots + tokens..(page + 1) * slots].fill(f32::NEG_INFINITY);
            }
        }
        soften(call.isa, &mut scores[start..])
    }

    /// Adds the weighted values at positions `seen` to `part`, for some queries of the tile. `next` is the
    /// span that comes next, and what is seen of it.
    fn weigh(
        &mut self,
        call: &Call<'_>,
        (row, head, span): (usize, usize, usize),
        queries: Range<usize>,
        seen: Range<usize>,
        next: Option<&(usize, Range<usize>)>,
    ) {
        let (tokens, elements) = (call.page_tokens(), self.elements);
        let sums = &mut self.part.values[queries.start * elements..queries.end * elements];
        let mut at = seen.start;
        while at < seen.end {
            let (page, slot) = (at / tokens, at % tokens);
            let count = (tokens - slot).min(seen.end - at);
            let first = queries.start * KV_SPLIT_SLOTS + page * call.slots() + slot;
            let weights = &self.scores[first..];
            let ahead = match next {
                Some((span, seen)) if seen.contains(&(page * tokens)) => {
                    call.block(row, head, *span, page).key_memory()
                }
                _ => &[],
            };
            match call.block(row, head, span, page) {
                Block::F16 { values, .. } => {
                    let values = &values[slot * elements..(slot + count) * elements];
                    weigh(call.isa, sums, elements, weights, KV_SPLIT_SLOTS, values, ahead);
                }
                Block::Q8 { values, .. } => {
                    let (stride, part) = (KV_SPLIT_SLOTS, (slot, count));
                    weigh_codes(
                        call.isa, sums, elements, weights, stride, values, part, ahead,
                    );
                }
            }
            at += count;
        }
    }

    /// Forgets what was folded.
    pub(super) fn start_fold(&mut self) {
        self.whole.clear();
    }

    /// Folds the worked span of each query into the whole.
    pub(super) fn fold_worked(&mut self, call: &Call<'_>, queries: usize) {
        let elements = self.elements;
        for query in 0..queries {
            let part = &self.part;
            let values = &part.values[query * elements..][..elements];
            let part = (part.max[query], part.sum[query], values);
            self.whole.fold(call.isa, query, part);
        }
    }

    /// Folds a span that was laid down into one query's whole.
    pub(super) fn fold_laid(&mut self, call: &Call<'_>, query: usize, laid: &[f32]) {
        let part = (laid[0], laid[1], &laid[2..]);
        self.whole.fold(call.isa, query, part);
    }

    /// Lays the worked span of one query down, `2 + elements` long.
    pub(super) fn lay(&self, query: usize, down: &mut [f32]) {
        (down[0], down[1]) = (self.part.max[query], self.part.sum[query]);
        down[2..].copy_from_slice(&self.part.values[query * self.elements..][..self.elements]);
    }

    /// Writes the heads of one row: values divided by the sum of weights (or zeros, if nothing had
    /// any weight).
    pub(super) fn give(&self, first: usize, out: &mut [f32], head_dim: usize) {
        for (query, out) in (first..).zip(out.chunks_exact_mut(head_dim)) {
            let sum = self.whole.sum[query];
            let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            let values = &self.whole.values[query * self.elements..];
            for (out, value) in out.iter_mut().zip(values) {
                *out = value * factor;
            }
        }
    }
}

by_isa! {
    scalar::scores, crate::arch::attention::scores;
    fn scores(
        queries: &[f32],
        dim: usize,
        keys: &[u16],
        scores: &mut [f32],
        stride: usize,
        ahead: &[u16],
    )
}
by_isa! { scalar::soften, crate::arch::attention::soften; fn soften(scores: &mut [f32]) -> (f32, f32) }
by_isa! {
    scalar::weigh, crate::arch::attention::weigh;
    fn weigh(
        sums: &mut [f32],
        elements: usize,
        weights: &[f32],
        stride: usize,
        values: &[u16],
        ahead: &[u16],
    )
}
by_isa! {
    codes::scores, crate::arch::codes::scores;
    fn scores_of_codes(
        queries: QueryCodes<'_>,
        keys: Codes<'_>,
        scores: &mut [f32],
        stride: usize,
        ahead: &[u16],
    )
}
by_isa! {
    codes::weigh, crate::arch::codes::weigh;
    #[expect(clippy::too_many_arguments, reason = "one inner loop, eight inputs")]
    fn weigh_codes(
        sums: &mut [f32],
        elements: usize,
        weights: &[f32],
        stride: usize,
        values: Codes<'_>,
        part: (usize, usize),
        ahead: &[u16],
    )
}
