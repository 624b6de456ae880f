//! AMX attention over many rows.
//!
//! Runs of at least [`AMX_ROWS_MIN`] consecutive rows come here if they have [`PAIR_QUERIES`] queries per KV
//! head (for fewer, packing keys costs as much as tiles gain). So the length of the run alone decides which
//! arithmetic a row gets. For one KV split:
//!
//! **Scores (QK).** A scaled query is split into the nearest bf16 and the nearest bf16 to the remainder; a key
//! into the first 8 significant bits and the remainder (exact for an f16; 16 bits for a quant times its scale).
//! Low by high, high by high and high by low are added in f32, 32 elements after 32, in the order of the
//! instruction (of each 32, the first 16 products and the last 16 are summed separately). The missing low by
//! low product is below 2^-15 of the sum of the products' magnitudes: scores with cancellation keep their
//! significant bits.
//!
//! **Softmax.** Weights are `e^(score - max)` with relative error 2^-18, rounded to bf16. The row sum adds the
//! rounded weights, slot `s` in lane `s % 16`, lanes reduced at the end, so that rounding does not bias the
//! result.
//!
//! **Values (PV)** are rounded to bf16, and the weighted sum is accumulated in f32 over all slots of the split,
//! 32 after 32, of each the first 16 and the last 16 separately. Invisible slots have weight zero. Zero times
//! infinity is NaN: values that are not finite count as zero there, and are added separately for the rows that
//! see them.
//!
//! # Blocking
//!
//! The keys of a *block*, 32 slots, are packed and multiplied with all queries of a workspace, two tiles of 16
//! at a time; scores wait until all blocks of the split are done. Then each pair of tiles passes through
//! softmax and PV product with the packed values of the split. Missing rows of the last tile contain stale
//! data: no line of a tile affects another line.

use super::workspace::PartialSoftmax;
use super::{AttentionCall, KV_SPLIT_SLOTS};
use crate::arch::amx::{AmxTiles, TILE_ROWS};
use crate::arch::amx_attention::{
    BLOCK_SCORES, BLOCK_WEIGHTS, QUERY_TILES, TILE_FLOATS, mask_scores, pv_product, qk_scores,
    softmax_rows,
};
use crate::arch::amx_attention_pack::{
    SlotGroup, TILE_BF16S, TILE_DEPTH, pack_keys, pack_query, pack_values, split_len,
};
use crate::arch::prefetch::Prefetcher;
use crate::kv::LANES;
use crate::memory::ZeroedBuffer;
use half::bf16;
use std::ops::Range;

/// Consecutive rows of one sequence from which AMX is used.
pub(super) const AMX_ROWS_MIN: usize = 16;
/// Queries of a workspace, unless one row has more heads per KV head: they share packed keys and values.
pub(super) const QUERIES_MAX: usize = 128;
/// Queries per kernel call.
pub(super) const PAIR_QUERIES: usize = QUERY_TILES * TILE_ROWS;
/// Blocks of a KV split.
const SPLIT_BLOCKS: usize = KV_SPLIT_SLOTS / TILE_DEPTH;

/// AMX buffers of one workspace.
pub(super) struct AmxAttention {
    head_dim: usize,
    elements: usize,
    /// Packed queries, `(tiles, parts, head_dim / 32, 16, 32)`.
    queries: ZeroedBuffer<u16>,
    /// Packed keys of one block, `(head_dim / 32, parts, groups, 16, 32)`.
    keys: ZeroedBuffer<u16>,
    /// Packed values of a split, `(elements / 32, blocks, 2, 16, 32)`; the last has one tile of elements if
    /// their number is odd.
    values: ZeroedBuffer<u16>,
    /// Scores of a split, `(pairs of tiles, blocks, tiles, groups, 16, 16)`.
    scores: ZeroedBuffer<f32>,
    /// Softmax weights of a split for one pair of tiles, `(blocks, tiles, 16, 32)`.
    weights: ZeroedBuffer<u16>,
    /// Blocks with values that are not finite.
    non_finite: [bool; SPLIT_BLOCKS],
}

/// The rows of a query tile, one KV head and one KV split.
struct SplitTask<'a> {
    tiles: AmxTiles,
    call: &'a AttentionCall<'a>,
    rows: &'a Range<usize>,
    head: usize,
    split: usize,
}

impl AmxAttention {
    /// Allocates buffers for `queries` queries.
    pub(super) fn new(queries: usize, head_dim: usize, elements: usize) -> Self {
        let pairs = queries.div_ceil(PAIR_QUERIES);
        Self {
            head_dim,
            elements,
            queries: ZeroedBuffer::new(pairs * QUERY_TILES * split_len(head_dim)),
            keys: ZeroedBuffer::new(2 * split_len(head_dim)),
            values: ZeroedBuffer::new(elements / LANES * SPLIT_BLOCKS * TILE_BF16S),
            scores: ZeroedBuffer::new(pairs * SPLIT_BLOCKS * BLOCK_SCORES),
            weights: ZeroedBuffer::new(SPLIT_BLOCKS * BLOCK_WEIGHTS),
            non_finite: [false; SPLIT_BLOCKS],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let elements =
            self.queries.len() + self.keys.len() + self.values.len() + self.weights.len();
        elements * size_of::<u16>() + self.scores.len() * size_of::<f32>()
    }

    /// Packs the scaled queries of a query tile for one KV head.
    pub(super) fn load_queries(
        &mut self,
        call: &AttentionCall<'_>,
        rows: &Range<usize>,
        head: usize,
    ) {
        let tiles = thread_tiles(call);
        let tile = split_len(self.head_dim);
        let queries = rows
            .clone()
            .flat_map(|row| call.q[call.query_range(row, head)].chunks_exact(self.head_dim));
        for (i, query) in queries.enumerate() {
            let to = &mut self.queries[i / TILE_ROWS * tile..][..tile];
            pack_query(&tiles, query, call.params.scale, i % TILE_ROWS, to);
        }
    }

    /// Computes the partial results of the loaded queries for one KV split.
    pub(super) fn compute_split(
        &mut self,
        call: &AttentionCall<'_>,
        rows: &Range<usize>,
        head: usize,
        split: usize,
        part: &mut PartialSoftmax,
    ) {
        let task = SplitTask {
            tiles: thread_tiles(call),
            call,
            rows,
            head,
            split,
        };
        let blocks = task.blocks(rows);
        for block in blocks.clone() {
            self.score_block(&task, block, blocks.end);
        }
        for block in blocks {
            let values = &mut self.values[..];
            let offset = |tile| values_offset(tile, block, self.elements);
            self.non_finite[block] = pack_values(
                &task.tiles,
                task.groups(block),
                self.elements,
                values,
                offset,
            );
        }
        for pair in 0..task.pairs() {
            let blocks = task.blocks(&task.rows_of(pair));
            self.finish_pair(&task, pair, &blocks, part);
            self.add_non_finite(&task, pair, &blocks, part);
        }
    }

    /// Computes the scores of one block. The next memory is prefetched in between: the hardware prefetcher
    /// cannot predict the order of pages.
    fn score_block(&mut self, task: &SplitTask<'_>, block: usize, end: usize) {
        let groups = task.groups(block);
        pack_keys(&task.tiles, groups, self.head_dim, &mut self.keys);
        let next = if block + 1 < end {
            task.groups(block + 1)
        } else {
            [None; 2]
        };
        let mut prefetchers = [
            Prefetcher::new(groups[0].map_or(&[], |group| group.block.value_memory())),
            Prefetcher::new(next[0].map_or(&[], |group| group.block.key_memory())),
        ];
        let tile = split_len(self.head_dim);
        for pair in 0..task.pairs() {
            if !task.blocks(&task.rows_of(pair)).contains(&block) {
                continue;
            }
            let queries =
                &self.queries[pair * QUERY_TILES * tile..][..task.tile_count(pair) * tile];
            let at = (pair * SPLIT_BLOCKS + block) * BLOCK_SCORES;
            let scores = &mut self.scores[at..at + BLOCK_SCORES];
            qk_scores(&task.tiles, queries, &self.keys, scores, &mut prefetchers);
        }
        prefetchers.iter_mut().for_each(Prefetcher::remaining_lines);
    }

    /// Turns the scores of a pair of tiles into partial results of the split.
    fn finish_pair(
        &mut self,
        task: &SplitTask<'_>,
        pair: usize,
        blocks: &Range<usize>,
        part: &mut PartialSoftmax,
    ) {
        let first = pair * PAIR_QUERIES;
        let queries = first..first + task.tile_count(pair) * TILE_ROWS;
        let elements = self.elements;
        let sums = &mut part.values[queries.start * elements..queries.end * elements];
        if blocks.is_empty() {
            part.max[queries.clone()].fill(f32::NEG_INFINITY);
            part.sum[queries].fill(0.0);
            sums.fill(0.0);
            return;
        }
        let split = &mut self.scores[pair * SPLIT_BLOCKS * BLOCK_SCORES..];
        let scores = &mut split[blocks.start * BLOCK_SCORES..blocks.end * BLOCK_SCORES];
        if let Some(cap) = task.call.params.softcap {
            crate::softcap(task.call.isa, scores, cap);
        }
        let weights = &mut self.weights[..blocks.len() * BLOCK_WEIGHTS];
        for m in 0..task.tile_count(pair) {
            let first = first + m * TILE_ROWS;
            task.mask_invisible(first, m, blocks.start, scores);
            let stats = softmax_rows(&task.tiles, scores, m, weights);
            part.max[first..first + TILE_ROWS].copy_from_slice(&stats.max);
            part.sum[first..first + TILE_ROWS].copy_from_slice(&stats.sum);
        }
        for element in (0..elements).step_by(TILE_DEPTH) {
            let n = adjacent_tiles(element / LANES, elements);
            let at = values_offset(element / LANES, blocks.start, elements);
            let values = &self.values[at..at + blocks.len() * n * TILE_BF16S];
            pv_product(&task.tiles, weights, (values, n), sums, (element, elements));
        }
    }

    /// Adds the weighted values that are not finite for the queries that see them.
    fn add_non_finite(
        &self,
        task: &SplitTask<'_>,
        pair: usize,
        blocks: &Range<usize>,
        part: &mut PartialSoftmax,
    ) {
        let rows = task.rows_of(pair);
        let queries = task.queries(pair);
        for block in blocks.clone().filter(|block| self.non_finite[*block]) {
            let groups = task.groups(block);
            let slots = (0..TILE_DEPTH).filter_map(|at| Some((at, groups[at % 2]?)));
            for (at, group) in slots {
                let (n, slot) = (2 * block + at % 2, at / 2);
                let is_visible =
                    |visible: &Range<usize>| task.visibility_mask(n, visible) >> slot & 1 == 1;
                if !is_visible(&task.call.visible_to_tile(&rows, task.split)) {
                    continue;
                }
                for e in 0..self.elements {
                    let value = group.dequantize_element(slot, e, self.elements);
                    if value.is_finite() {
                        continue;
                    }
                    for query in queries
                        .clone()
                        .filter(|query| is_visible(&task.visible(*query)))
                    {
                        let line = (block - blocks.start) * PAIR_QUERIES + query % PAIR_QUERIES;
                        let weight = bf16::from_bits(self.weights[line * TILE_DEPTH + at]);
                        part.values[query * self.elements + e] += weight.to_f32() * value;
                    }
                }
            }
        }
    }
}

impl<'a> SplitTask<'a> {
    fn query_count(&self) -> usize {
        self.rows.len() * self.call.group_size()
    }

    /// Pairs of query tiles; the last pair may have one tile only, and unused lines in the last tile.
    fn pairs(&self) -> usize {
        self.query_count().div_ceil(PAIR_QUERIES)
    }

    fn queries(&self, pair: usize) -> Range<usize> {
        pair * PAIR_QUERIES..((pair + 1) * PAIR_QUERIES).min(self.query_count())
    }

    fn tile_count(&self, pair: usize) -> usize {
        self.queries(pair).len().div_ceil(TILE_ROWS)
    }

    /// The row of a query, or the last row for an unused line.
    fn row_of_query(&self, query: usize) -> usize {
        (self.rows.start + query / self.call.group_size()).min(self.rows.end - 1)
    }

    fn rows_of(&self, pair: usize) -> Range<usize> {
        let queries = self.queries(pair);
        self.row_of_query(queries.start)..self.row_of_query(queries.end - 1) + 1
    }

    /// The positions of the split that a query sees, relative to the start of the split.
    fn visible(&self, query: usize) -> Range<usize> {
        self.call
            .visible_in_split(self.row_of_query(query), self.split)
    }

    /// The blocks of the split that some of these rows see.
    fn blocks(&self, rows: &Range<usize>) -> Range<usize> {
        let visible = self.call.visible_to_tile(rows, self.split);
        if visible.is_empty() {
            return 0..0;
        }
        let (tokens, slots) = (self.call.page_tokens(), self.call.slots());
        let slot_of = |position: usize| position / tokens * slots + position % tokens;
        slot_of(visible.start) / TILE_DEPTH..slot_of(visible.end - 1) / TILE_DEPTH + 1
    }

    /// The slot groups of a block that are in pages that some row sees.
    fn groups(&self, block: usize) -> [Option<SlotGroup<'a>>; 2] {
        [2 * block, 2 * block + 1].map(|group| {
            let (call, slots) = (self.call, self.call.slots());
            let (page, first) = (group * LANES / slots, group * LANES % slots);
            let visible = call.visible_to_tile(self.rows, self.split);
            let pages =
                visible.start / call.page_tokens()..visible.end.div_ceil(call.page_tokens());
            if !pages.contains(&page) {
                return None;
            }
            Some(SlotGroup {
                block: call.block(self.rows.start, self.head, self.split, page),
                slots,
                first,
            })
        })
    }

    /// A bit for each slot of a slot group that is among these positions.
    fn visibility_mask(&self, group: usize, visible: &Range<usize>) -> u16 {
        let (tokens, slots) = (self.call.page_tokens(), self.call.slots());
        let (page, first) = (group * LANES / slots, group * LANES % slots);
        let start = page * tokens + first;
        let there = tokens.saturating_sub(first).min(LANES);
        let below = |position: usize| (1u32 << position.saturating_sub(start).min(there)) - 1;
        (below(visible.end) & !below(visible.start)) as u16
    }

    /// Masks the scores that the queries of a tile do not see; the tile is number `m` of its pair, and `scores`
    /// begin with `block`.
    fn mask_invisible(&self, first: usize, m: usize, block: usize, scores: &mut [f32]) {
        // The visible range of the last row starts last, the range of the first row ends first.
        let all = self.visible(first + TILE_ROWS - 1).start..self.visible(first).end;
        for (i, scores) in scores.chunks_exact_mut(BLOCK_SCORES).enumerate() {
            for n in 0..2 {
                let group = 2 * (block + i) + n;
                if self.visibility_mask(group, &all) == u16::MAX {
                    continue;
                }
                let visible = std::array::from_fn(|line| {
                    self.visibility_mask(group, &self.visible(first + line))
                });
                let at = (m * 2 + n) * TILE_FLOATS;
                mask_scores(&self.tiles, &mut scores[at..at + TILE_FLOATS], &visible);
            }
        }
    }
}

/// Configures the AMX tiles of this thread.
///
/// # Panics
/// If the level has no AMX; an [`AmxAttention`] exists only for levels with AMX.
fn thread_tiles(call: &AttentionCall<'_>) -> AmxTiles {
    call.isa.tiles().expect("the level has tiles")
}

/// Adjacent tiles of elements, the tile included: two, or one for the last.
fn adjacent_tiles(tile: usize, elements: usize) -> usize {
    (elements / LANES - tile / 2 * 2).min(2)
}

/// Offset of the packed values of 16 elements of a block.
fn values_offset(tile: usize, block: usize, elements: usize) -> usize {
    let n = adjacent_tiles(tile, elements);
    (tile / 2 * 2 * SPLIT_BLOCKS + block * n + tile % 2) * TILE_BF16S
}
