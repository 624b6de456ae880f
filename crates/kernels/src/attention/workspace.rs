//! Workspace of one worker: the queries of a tile against one KV split, and the merge of KV splits.

#[cfg(target_arch = "x86_64")]
use super::amx::{AmxAttention, PAIR_QUERIES, QUERIES_MAX};
use super::int8::{QueryQuantizer, UnpackedPage, accumulate_pv_int8, qk_scores_int8};
use super::{AttentionCall, KV_SPLIT_SLOTS, QueryTile, reference};
use crate::arch::prefetch::prefetch_all;
use crate::dispatch::by_isa;
use crate::kv::KvBlock;
use crate::{Isa, KvKind};
use std::ops::Range;

/// Buffers for one query tile and one KV head. `elements` is `head_dim` with padding.
pub(super) struct AttentionWorkspace {
    elements: usize,
    /// Scaled queries, `(queries, head_dim)`.
    queries: Vec<f32>,
    /// Quantized queries, if keys are quantized.
    quantized: QueryQuantizer,
    /// Keys or values of one page, if they have 4 bits.
    unpacked: UnpackedPage,
    /// Scores, then softmax weights of one KV split, `(queries, KV_SPLIT_SLOTS)`.
    scores: Vec<f32>,
    /// Partial results of one KV split.
    part: PartialSoftmax,
    /// The merge of the KV splits so far.
    merged: PartialSoftmax,
    /// Buffers of AMX attention, if AMX is used.
    #[cfg(target_arch = "x86_64")]
    amx: Option<AmxAttention>,
}

/// Capacity of a workspace.
#[derive(Clone, Copy)]
pub(super) struct WorkspaceSize {
    pub(super) queries: usize,
    /// Storage of keys and values.
    pub(super) kind: KvKind,
    /// Whether AMX is used, which takes more queries at a time.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AMX"))]
    pub(super) amx: bool,
}

impl AttentionWorkspace {
    /// Allocates the workspace; `elements` is `head_dim` with padding.
    pub(super) fn new(size: WorkspaceSize, head_dim: usize, elements: usize) -> Self {
        let queries = size.queries;
        #[cfg(target_arch = "x86_64")]
        let (amx, shared) = if size.amx {
            let use_amx = queries.max(QUERIES_MAX).next_multiple_of(PAIR_QUERIES);
            (
                Some(AmxAttention::new(use_amx, head_dim, elements)),
                use_amx,
            )
        } else {
            (None, queries)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let shared = queries;
        let quantized = if size.kind.is_quantized() { queries } else { 0 };
        let unpacked = if size.kind == KvKind::Q4_0 {
            elements
        } else {
            0
        };
        Self {
            elements,
            queries: vec![0.0; queries * head_dim],
            quantized: QueryQuantizer::new(quantized, elements),
            unpacked: UnpackedPage::new(unpacked),
            scores: vec![0.0; queries * KV_SPLIT_SLOTS],
            part: PartialSoftmax::new(shared, elements),
            merged: PartialSoftmax::new(shared, elements),
            #[cfg(target_arch = "x86_64")]
            amx,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let floats = self.queries.len() + self.scores.len();
        #[cfg(target_arch = "x86_64")]
        let amx_bytes = self.amx.as_ref().map_or(0, AmxAttention::bytes);
        #[cfg(not(target_arch = "x86_64"))]
        let amx_bytes = 0;
        let partials = self.part.bytes() + self.merged.bytes();
        let quants = self.quantized.bytes() + self.unpacked.bytes();
        floats * size_of::<f32>() + partials + quants + amx_bytes
    }

    /// Loads the scaled queries of a tile for one KV head.
    pub(super) fn load_queries(&mut self, call: &AttentionCall<'_>, tile: &QueryTile, head: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = self.amx.as_mut().filter(|_| tile.use_amx) {
            return amx.load_queries(call, &tile.rows, head);
        }
        let tile = &tile.rows;
        let from = tile
            .clone()
            .flat_map(|row| &call.q[call.query_range(row, head)]);
        for (to, from) in self.queries.iter_mut().zip(from) {
            *to = from * call.params.scale;
        }
        if call.kv.shape().kind.is_quantized() {
            let dim = call.head_dim();
            let queries = tile.len() * call.group_size();
            self.quantized
                .quantize_queries(&self.queries[..queries * dim], dim);
        }
    }

    /// Computes the partial results of the loaded queries for one KV split. `steps` is the distance to the KV
    /// split that this worker computes next, whose keys are prefetched.
    pub(super) fn compute_split(
        &mut self,
        call: &AttentionCall<'_>,
        tile: &QueryTile,
        head: usize,
        (split, steps): (usize, usize),
    ) {
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = self.amx.as_mut().filter(|_| tile.use_amx) {
            return amx.compute_split(call, &tile.rows, head, split, &mut self.part);
        }
        self.compute_split_by_rows(call, &tile.rows, head, (split, steps));
    }

    /// [`Self::compute_split`] without AMX.
    fn compute_split_by_rows(
        &mut self,
        call: &AttentionCall<'_>,
        tile: &Range<usize>,
        head: usize,
        (split, steps): (usize, usize),
    ) {
        let group = call.group_size();
        let visible = call.visible_to_tile(tile, split);
        let is_cold = split < call.splits(tile).start + steps;
        self.compute_scores(call, tile, head, (split, is_cold), &visible);
        for (query, row) in tile
            .clone()
            .flat_map(|row| (0..group).map(move |_| row))
            .enumerate()
        {
            let visible = call.visible_in_split(row, split);
            (self.part.max[query], self.part.sum[query]) =
                self.softmax_query(call, query, &visible);
        }
        self.part.values[..tile.len() * group * self.elements].fill(0.0);
        // Positions that all rows see are summed together, the ragged ends row by row: an invisible value must
        // not be touched, not even with weight zero (zero times infinity).
        let all = tile
            .clone()
            .map(|row| call.visible_in_split(row, split))
            .reduce(|a, b| a.start.max(b.start)..a.end.min(b.end));
        let all = all
            .filter(|all| !all.is_empty())
            .unwrap_or(visible.end..visible.end);
        let rows = || {
            tile.clone()
                .map(|row| (row, call.visible_in_split(row, split)))
        };
        let queries_of = |row: usize| (row - tile.start) * group..(row - tile.start + 1) * group;
        for (row, visible) in rows() {
            let part = visible.start..all.start.min(visible.end);
            self.accumulate_values(call, (row, head, split), queries_of(row), part, None);
        }
        let next = (split + steps < call.splits(tile).end).then_some(split + steps);
        let next = next.map(|next| (next, call.visible_to_tile(tile, next)));
        let queries = 0..tile.len() * group;
        self.accumulate_values(
            call,
            (tile.start, head, split),
            queries,
            all.clone(),
            next.as_ref(),
        );
        for (row, visible) in rows() {
            let part = all.end.min(visible.end)..visible.end;
            self.accumulate_values(call, (row, head, split), queries_of(row), part, None);
        }
    }

    /// Raw scores of all queries for the pages that hold the positions `visible` of the KV split.
    fn compute_scores(
        &mut self,
        call: &AttentionCall<'_>,
        tile: &Range<usize>,
        head: usize,
        (split, is_cold): (usize, bool),
        visible: &Range<usize>,
    ) {
        let (dim, slots) = (call.head_dim(), call.slots());
        let count = tile.len() * call.group_size();
        let last = (visible.end - 1) / call.page_tokens();
        for page in visible.start / call.page_tokens()..=last {
            let block = call.block(tile.start, head, split, page);
            // The hardware prefetcher cannot predict the order of pages.
            if is_cold {
                prefetch_all(
                    call.block(tile.start, head, split, (page + 1).min(last))
                        .key_memory(),
                );
            }
            let upcoming = block.value_memory();
            let scores_at = &mut self.scores[page * slots..];
            match block {
                KvBlock::F16 { keys, .. } => {
                    let queries = &self.queries[..count * dim];
                    qk_scores(
                        call.isa,
                        queries,
                        dim,
                        keys,
                        scores_at,
                        KV_SPLIT_SLOTS,
                        upcoming,
                    );
                }
                KvBlock::Q8 { keys, .. } => {
                    let queries = self.quantized.first_queries(count);
                    qk_scores_int8(call.isa, queries, keys, scores_at, KV_SPLIT_SLOTS, upcoming);
                }
                KvBlock::Q4 { keys, .. } => {
                    let queries = self.quantized.first_queries(count);
                    let keys = self.unpacked.unpack(call.isa, keys);
                    qk_scores_int8(call.isa, queries, keys, scores_at, KV_SPLIT_SLOTS, upcoming);
                }
            }
        }
    }

    /// Softmax of one query over its visible positions; returns the maximum score and the sum of weights.
    fn softmax_query(
        &mut self,
        call: &AttentionCall<'_>,
        query: usize,
        visible: &Range<usize>,
    ) -> (f32, f32) {
        if visible.is_empty() {
            return (f32::NEG_INFINITY, 0.0);
        }
        let (tokens, slots) = (call.page_tokens(), call.slots());
        let slot_of = |position: usize| position / tokens * slots + position % tokens;
        let (first, last) = (slot_of(visible.start), slot_of(visible.end - 1));
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
        softmax(call.isa, &mut scores[start..])
    }

    /// Adds the weighted values at positions `visible` to `part` for some queries of the tile. `next` is the
    /// next KV split and its visible positions.
    fn accumulate_values(
        &mut self,
        call: &AttentionCall<'_>,
        (row, head, split): (usize, usize, usize),
        queries: Range<usize>,
        visible: Range<usize>,
        next: Option<&(usize, Range<usize>)>,
    ) {
        let (tokens, elements) = (call.page_tokens(), self.elements);
        let sums = &mut self.part.values[queries.start * elements..queries.end * elements];
        let mut at = visible.start;
        while at < visible.end {
            let (page, slot) = (at / tokens, at % tokens);
            let count = (tokens - slot).min(visible.end - at);
            let first = queries.start * KV_SPLIT_SLOTS + page * call.slots() + slot;
            let weights = &self.scores[first..];
            let upcoming = match next {
                Some((split, visible)) if visible.contains(&(page * tokens)) => {
                    call.block(row, head, *split, page).key_memory()
                }
                _ => &[],
            };
            match call.block(row, head, split, page) {
                KvBlock::F16 { values, .. } => {
                    let values = &values[slot * elements..(slot + count) * elements];
                    accumulate_pv(
                        call.isa,
                        sums,
                        elements,
                        weights,
                        KV_SPLIT_SLOTS,
                        values,
                        upcoming,
                    );
                }
                KvBlock::Q8 { values, .. } => {
                    let (stride, part) = (KV_SPLIT_SLOTS, (slot, count));
                    accumulate_pv_int8(
                        call.isa, sums, elements, weights, stride, values, part, upcoming,
                    );
                }
                KvBlock::Q4 { values, .. } => {
                    let (stride, part) = (KV_SPLIT_SLOTS, (slot, count));
                    let values = self.unpacked.unpack(call.isa, values);
                    accumulate_pv_int8(
                        call.isa, sums, elements, weights, stride, values, part, upcoming,
                    );
                }
            }
            at += count;
        }
    }

    /// Starts an empty merge.
    pub(super) fn reset_merge(&mut self) {
        self.merged.clear();
    }

    /// Merges the computed partial result of each query.
    pub(super) fn merge_computed(&mut self, call: &AttentionCall<'_>, queries: usize) {
        let elements = self.elements;
        for query in 0..queries {
            let part = &self.part;
            let values = &part.values[query * elements..][..elements];
            let part = (part.max[query], part.sum[query], values);
            self.merged.merge(call.isa, query, part);
        }
    }

    /// Merges a stored partial result into the result of one query.
    pub(super) fn merge_stored(
        &mut self,
        call: &AttentionCall<'_>,
        query: usize,
        partials: &[f32],
    ) {
        let part = (partials[0], partials[1], &partials[2..]);
        self.merged.merge(call.isa, query, part);
    }

    /// Copies the partial result of one query to `down`, `2 + elements` long.
    pub(super) fn store_partial(&self, query: usize, down: &mut [f32]) {
        (down[0], down[1]) = (self.part.max[query], self.part.sum[query]);
        down[2..].copy_from_slice(&self.part.values[query * self.elements..][..self.elements]);
    }

    /// The merge of the KV splits.
    pub(super) fn merged(&self) -> &PartialSoftmax {
        &self.merged
    }
}

by_isa! {
    reference::qk_scores, crate::arch::attention::qk_scores;
    fn qk_scores(
        queries: &[f32],
        dim: usize,
        keys: &[u16],
        scores: &mut [f32],
        stride: usize,
        upcoming: &[u16],
    )
}
by_isa! { reference::softmax, crate::arch::attention::softmax; fn softmax(scores: &mut [f32]) -> (f32, f32) }
by_isa! {
    reference::accumulate_pv, crate::arch::attention::accumulate_pv;
    fn accumulate_pv(
        sums: &mut [f32],
        elements: usize,
        weights: &[f32],
        stride: usize,
        values: &[u16],
        upcoming: &[u16],
    )
}

/// Softmax results before the division by the sum, per query.
pub(super) struct PartialSoftmax {
    /// Row maximum of the scores.
    pub(super) max: Vec<f32>,
    /// Row sum of the weights.
    pub(super) sum: Vec<f32>,
    /// Weighted values, `(queries, elements)`.
    pub(super) values: Vec<f32>,
}

impl PartialSoftmax {
    pub(super) fn new(queries: usize, elements: usize) -> Self {
        Self {
            max: vec![0.0; queries],
            sum: vec![0.0; queries],
            values: vec![0.0; queries * elements],
        }
    }

    pub(super) fn clear(&mut self) {
        self.max.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
        self.values.fill(0.0);
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        (self.max.len() + self.sum.len() + self.values.len()) * size_of::<f32>()
    }

    /// Merges the partial result of one KV split into a query's result: both are rescaled to the larger
    /// maximum.
    pub(super) fn merge(&mut self, isa: Isa, query: usize, (max, sum, values): (f32, f32, &[f32])) {
        if max == f32::NEG_INFINITY && sum == 0.0 {
            return;
        }
        let most = self.max[query].max(max);
        let (old, new) = ((self.max[query] - most).exp(), (max - most).exp());
        self.max[query] = most;
        self.sum[query] = self.sum[query] * old + sum * new;
        let elements = values.len();
        rescale_add(
            isa,
            &mut self.values[query * elements..][..elements],
            old,
            values,
            new,
        );
    }

    /// Writes the heads of one row: values divided by the sum of weights, those of the sinks included (or zeros, if the
    /// sum is zero).
    pub(super) fn write_heads(
        &self,
        first: usize,
        sinks: Option<&[f32]>,
        out: &mut [f32],
        head_dim: usize,
    ) {
        let elements = self.values.len() / self.max.len();
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let query = first + head;
            let sum = self.sum_with_sink(query, sinks.map(|sinks| sinks[head]));
            let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            let values = &self.values[query * elements..];
            for (out, value) in out.iter_mut().zip(values) {
                *out = value * factor;
            }
        }
    }

    /// The sum of weights of a query, plus the weight of a score without a value. A sink that is far above all scores has
    /// an infinite weight, next to which the others count nothing.
    fn sum_with_sink(&self, query: usize, sink: Option<f32>) -> f32 {
        let (max, sum) = (self.max[query], self.sum[query]);
        sink.map_or(sum, |sink| sum + (sink - max).exp())
    }
}

by_isa! {
    reference::rescale_add, crate::arch::attention::rescale_add;
    fn rescale_add(merged: &mut [f32], old: f32, part: &[f32], new: f32)
}
