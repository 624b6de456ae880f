//! Many rows' attention on tiles, for processors that have them (AMX).
//!
//! Rows of a run of [`AMX_ROWS_MIN`] or more consecutive ones come here, if these have [`PAIR_QUERIES`] for a kv
//! head (for fewer, taking keys apart costs what tiles gain); others do not. So the length of the run decides
//! which arithmetic a model's row gets, and nothing else does. For one split:
//!
//! **Scores.** A scaled query is split into the nearest bf16 and the nearest to what that leaves, a key
//! into its first 8 digits and the rest (exactly, if it is an f16; to 16 digits, if it is a code and a scale). Low by high, high by high and high by low are added in f32, 32 elements after 32,
//! in the order of the instruction (of each 32, the first 16 products and the last 16 are summed apart). What
//! is left out is below 2^-15 of the sum of the products' sizes: scores whose parts cancel keep their digits.
//!
//! **Weights.** `e^(score - max)` within 2^-18 of it, rounded to bf16. Their sum is that of rounded weights,
//! slot `s` in lane `s % 16`, lanes folded at the end: so that rounding does not shift what all values have
//! in common.
//!
//! **Values** are rounded to bf16, and weighed values summed in f32 over all slots of the split, 32 after 32, of
//! each the first 16 and the last 16 apart. What a row does not see has weight zero. Zero times an infinity is
//! NaN: values that are not finite count as zero there, and are added by the rows that see them.
//!
//! # How the work is cut
//!
//! Keys of a *block*, 32 slots, are taken apart and multiplied with all queries of a workspace, two tiles of 16 at a
//! time; scores wait until the split's are there. Then each two tiles are stats and weigh the split's values,
//! which were taken apart meanwhile. Rows that are missing in a last tile are whatever was left there: no
//! line of a tile touches another.

use super::call::AttentionCall;
use super::params::KV_SPLIT_SLOTS;
use super::partial_softmax::PartialSoftmax;
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

/// Consecutive rows of one sequence from which tiles are used.
pub(super) const AMX_ROWS_MIN: usize = 16;
/// Queries of a workspace, unless one row has more heads per kv head: they share what is taken apart.
pub(super) const QUERIES_MAX: usize = 128;
/// Queries that are taken at a time.
pub(super) const PAIR_QUERIES: usize = QUERY_TILES * TILE_ROWS;
/// Blocks of a split.
const SPLIT_BLOCKS: usize = KV_SPLIT_SLOTS / TILE_DEPTH;

/// Buffers for one workspace.
pub(super) struct AmxAttention {
    head_dim: usize,
    elements: usize,
    /// `(tiles, parts, head_dim / 32, 16, 32)`.
    queries: ZeroedBuffer<u16>,
    /// One block's, `(head_dim / 32, parts, groups, 16, 32)`.
    keys: ZeroedBuffer<u16>,
    /// A split's, `(elements / 32, blocks, 2, 16, 32)`, the last with one tile of elements if they are non_finite.
    values: ZeroedBuffer<u16>,
    /// A split's, `(pairs of tiles, blocks, tiles, groups, 16, 16)`.
    scores: ZeroedBuffer<f32>,
    /// A split's of one pair of tiles, `(blocks, tiles, 16, 32)`.
    weights: ZeroedBuffer<u16>,
    /// The blocks whose values are not all finite.
    non_finite: [bool; SPLIT_BLOCKS],
}

/// A tile's rows against one split of one kv head.
struct SplitTask<'a> {
    tiles: AmxTiles,
    call: &'a AttentionCall<'a>,
    rows: &'a Range<usize>,
    head: usize,
    split: usize,
}

impl AmxAttention {
    /// For so use_amx queries.
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
        let halves = self.queries.len() + self.keys.len() + self.values.len() + self.weights.len();
        halves * size_of::<u16>() + self.scores.len() * size_of::<f32>()
    }

    /// Takes the queries of a tile of rows for one kv head, scaled.
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

    /// Computes `part` for the taken queries against one split.
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

    /// Scores of one block. What comes next is asked for meanwhile: pages lie anywhere, so the processor
    /// cannot guess it.
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

    /// From the scores of a pair of tiles to their part of the split.
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

    /// Adds weighted values that are not finite where they are visible.
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

    /// Pairs of tiles of queries; the last may have one tile only, and its last lines may be nobody's.
    fn pairs(&self) -> usize {
        self.query_count().div_ceil(PAIR_QUERIES)
    }

    fn queries(&self, pair: usize) -> Range<usize> {
        pair * PAIR_QUERIES..((pair + 1) * PAIR_QUERIES).min(self.query_count())
    }

    fn tile_count(&self, pair: usize) -> usize {
        self.queries(pair).len().div_ceil(TILE_ROWS)
    }

    /// The row of a query, or the last one for nobody's.
    fn row_of_query(&self, query: usize) -> usize {
        (self.rows.start + query / self.call.group_size()).min(self.rows.end - 1)
    }

    fn rows_of(&self, pair: usize) -> Range<usize> {
        let queries = self.queries(pair);
        self.row_of_query(queries.start)..self.row_of_query(queries.end - 1) + 1
    }

    /// What a query's row is_visible of the split, counted from its start.
    fn visible(&self, query: usize) -> Range<usize> {
        self.call
            .visible_in_split(self.row_of_query(query), self.split)
    }

    /// The split's blocks that some of these rows see.
    fn blocks(&self, rows: &Range<usize>) -> Range<usize> {
        let visible = self.call.visible_to_tile(rows, self.split);
        if visible.is_empty() {
            return 0..0;
        }
        let (tokens, slots) = (self.call.page_tokens(), self.call.slots());
        let slot_of = |position: usize| position / tokens * slots + position % tokens;
        slot_of(visible.start) / TILE_DEPTH..slot_of(visible.end - 1) / TILE_DEPTH + 1
    }

    /// The groups of a block, where they are in pages that some row is_visible.
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

    /// A bit for each slot of a group that is among these positions.
    fn visibility_mask(&self, group: usize, visible: &Range<usize>) -> u16 {
        let (tokens, slots) = (self.call.page_tokens(), self.call.slots());
        let (page, first) = (group * LANES / slots, group * LANES % slots);
        let start = page * tokens + first;
        let there = tokens.saturating_sub(first).min(LANES);
        let below = |position: usize| (1u32 << position.saturating_sub(start).min(there)) - 1;
        (below(visible.end) & !below(visible.start)) as u16
    }

    /// Hides what the queries of a tile, the `m`th of its pair, do not see. `scores` begin with a block.
    fn mask_invisible(&self, first: usize, m: usize, block: usize, scores: &mut [f32]) {
        // The last row's visible_range begins furthest ahead, the first's ends first.
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

/// This thread's tiles.
///
/// # Panics
/// If there are none: then nobody made a [`AmxAttention`].
fn thread_tiles(call: &AttentionCall<'_>) -> AmxTiles {
    call.isa.tiles().expect("the level has tiles")
}

/// AmxTiles of elements that a tile of them lies beside, itself included.
fn adjacent_tiles(tile: usize, elements: usize) -> usize {
    (elements / LANES - tile / 2 * 2).min(2)
}

/// Where a block's values of 16 elements are.
fn values_offset(tile: usize, block: usize, elements: usize) -> usize {
    let n = adjacent_tiles(tile, elements);
    (tile / 2 * 2 * SPLIT_BLOCKS + block * n + tile % 2) * TILE_BF16S
}
