//! Many rows' attention on tiles, for processors that have them (AMX).
//!
//! Rows of a run of [`ROWS_MIN`] or more consecutive ones come here, if these have [`PAIR_QUERIES`] for a kv
//! head (for fewer, taking keys apart costs what tiles gain); others do not. So the length of the run decides
//! which arithmetic a model's row gets, and nothing else does. For one span:
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
//! **Values** are rounded to bf16, and weighed values summed in f32 over all slots of the span, 32 after 32, of
//! each the first 16 and the last 16 apart. What a row does not see has weight zero. Zero times an infinity is
//! NaN: values that are not finite count as zero there, and are added by the rows that see them.
//!
//! # How the work is cut
//!
//! Keys of a *block*, 32 slots, are taken apart and multiplied with all queries of a desk, two tiles of 16 at a
//! time; scores wait until the span's are there. Then each two tiles are softened and weigh the span's values,
//! which were taken apart meanwhile. Rows that are missing in a last tile are whatever was left there: no
//! line of a tile touches another.

use super::call::Call;
use super::params::KV_SPLIT_SLOTS;
use super::share::Share;
use crate::arch::attention_ready::{
    DEPTH, TILE_HALVES, Unit, split_halves, take_keys, take_query, take_values,
};
use crate::arch::attention_tiles::{
    BLOCK_SCORES, BLOCK_WEIGHTS, PAIR, TILE_FLOATS, hide, score, soften, weigh,
};
use crate::arch::prefetch::Ahead;
use crate::arch::tiles::{TILE_LINES, Tiles};
use crate::kv::LANES;
use crate::memory::ZeroedBuffer;
use half::bf16;
use std::ops::Range;

/// Consecutive rows of one sequence from which tiles are used.
pub(super) const ROWS_MIN: usize = 16;
/// Queries of a desk, unless one row has more heads per kv head: they share what is taken apart.
pub(super) const QUERIES_MAX: usize = 128;
/// Queries that are taken at a time.
pub(super) const PAIR_QUERIES: usize = PAIR * TILE_LINES;
/// Blocks of a span.
const SPAN_BLOCKS: usize = KV_SPLIT_SLOTS / DEPTH;

/// Buffers for one desk.
pub(super) struct Tiled {
    head_dim: usize,
    elements: usize,
    /// `(tiles, parts, head_dim / 32, 16, 32)`.
    queries: ZeroedBuffer<u16>,
    /// One block's, `(head_dim / 32, parts, units, 16, 32)`.
    keys: ZeroedBuffer<u16>,
    /// A span's, `(elements / 32, blocks, 2, 16, 32)`, the last with one tile of elements if they are odd.
    values: ZeroedBuffer<u16>,
    /// A span's, `(pairs of tiles, blocks, tiles, units, 16, 16)`.
    scores: ZeroedBuffer<f32>,
    /// A span's of one pair of tiles, `(blocks, tiles, 16, 32)`.
    weights: ZeroedBuffer<u16>,
    /// The blocks whose values are not all finite.
    odd: [bool; SPAN_BLOCKS],
}

/// A tile's rows against one span of one kv head.
struct Task<'a> {
    tiles: Tiles,
    call: &'a Call<'a>,
    rows: &'a Range<usize>,
    head: usize,
    span: usize,
}

impl Tiled {
    /// For so many queries.
    pub(super) fn new(queries: usize, head_dim: usize, elements: usize) -> Self {
        let pairs = queries.div_ceil(PAIR_QUERIES);
        Self {
            head_dim,
            elements,
            queries: ZeroedBuffer::new(pairs * PAIR * split_halves(head_dim)),
            keys: ZeroedBuffer::new(2 * split_halves(head_dim)),
            values: ZeroedBuffer::new(elements / LANES * SPAN_BLOCKS * TILE_HALVES),
            scores: ZeroedBuffer::new(pairs * SPAN_BLOCKS * BLOCK_SCORES),
            weights: ZeroedBuffer::new(SPAN_BLOCKS * BLOCK_WEIGHTS),
            odd: [false; SPAN_BLOCKS],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let halves = self.queries.len() + self.keys.len() + self.values.len() + self.weights.len();
        halves * size_of::<u16>() + self.scores.len() * size_of::<f32>()
    }

    /// Takes the queries of a tile of rows for one kv head, scaled.
    pub(super) fn take(&mut self, call: &Call<'_>, rows: &Range<usize>, head: usize) {
        let tiles = tiles_of(call);
        let tile = split_halves(self.head_dim);
        let queries = rows
            .clone()
            .flat_map(|row| call.q[call.place(row, head)].chunks_exact(self.head_dim));
        for (i, query) in queries.enumerate() {
            let to = &mut self.queries[i / TILE_LINES * tile..][..tile];
            take_query(&tiles, query, call.params.scale, i % TILE_LINES, to);
        }
    }

    /// Computes `part` for the taken queries against one span.
    pub(super) fn work(
        &mut self,
        call: &Call<'_>,
        rows: &Range<usize>,
        head: usize,
        span: usize,
        part: &mut Share,
    ) {
        let task = Task {
            tiles: tiles_of(call),
            call,
            rows,
            head,
            span,
        };
        let blocks = task.blocks(rows);
        for block in blocks.clone() {
            self.score_block(&task, block, blocks.end);
        }
        for block in blocks {
            let values = &mut self.values[..];
            let place = |tile| place_of_values(tile, block, self.elements);
            self.odd[block] =
                take_values(&task.tiles, task.units(block), self.elements, values, place);
        }
        for pair in 0..task.pairs() {
            let blocks = task.blocks(&task.rows_of(pair));
            self.finish(&task, pair, &blocks, part);
            self.add_odd(&task, pair, &blocks, part);
        }
    }

    /// Scores of one block. What comes next is asked for meanwhile: pages lie anywhere, so the processor
    /// cannot guess it.
    fn score_block(&mut self, task: &Task<'_>, block: usize, end: usize) {
        let units = task.units(block);
        take_keys(&task.tiles, units, self.head_dim, &mut self.keys);
        let next = if block + 1 < end {
            task.units(block + 1)
        } else {
            [None; 2]
        };
        let mut ahead = [
            Ahead::new(units[0].map_or(&[], |unit| unit.block.value_memory())),
            Ahead::new(next[0].map_or(&[], |unit| unit.block.key_memory())),
        ];
        let tile = split_halves(self.head_dim);
        for pair in 0..task.pairs() {
            if !task.blocks(&task.rows_of(pair)).contains(&block) {
                continue;
            }
            let queries = &self.queries[pair * PAIR * tile..][..task.tiles_of(pair) * tile];
            let at = (pair * SPAN_BLOCKS + block) * BLOCK_SCORES;
            let scores = &mut self.scores[at..at + BLOCK_SCORES];
            score(&task.tiles, queries, &self.keys, scores, &mut ahead);
        }
        ahead.iter_mut().for_each(Ahead::finish);
    }

    /// From the scores of a pair of tiles to their part of the span.
    fn finish(&mut self, task: &Task<'_>, pair: usize, blocks: &Range<usize>, part: &mut Share) {
        let first = pair * PAIR_QUERIES;
        let queries = first..first + task.tiles_of(pair) * TILE_LINES;
        let elements = self.elements;
        let sums = &mut part.values[queries.start * elements..queries.end * elements];
        if blocks.is_empty() {
            part.max[queries.clone()].fill(f32::NEG_INFINITY);
            part.sum[queries].fill(0.0);
            sums.fill(0.0);
            return;
        }
        let span = &mut self.scores[pair * SPAN_BLOCKS * BLOCK_SCORES..];
        let scores = &mut span[blocks.start * BLOCK_SCORES..blocks.end * BLOCK_SCORES];
        if let Some(cap) = task.call.params.softcap {
            crate::softcap(task.call.isa, scores, cap);
        }
        let weights = &mut self.weights[..blocks.len() * BLOCK_WEIGHTS];
        for m in 0..task.tiles_of(pair) {
            let first = first + m * TILE_LINES;
            task.hide(first, m, blocks.start, scores);
            let softened = soften(&task.tiles, scores, m, weights);
            part.max[first..first + TILE_LINES].copy_from_slice(&softened.max);
            part.sum[first..first + TILE_LINES].copy_from_slice(&softened.sum);
        }
        for element in (0..elements).step_by(DEPTH) {
            let n = side_by_side(element / LANES, elements);
            let at = place_of_values(element / LANES, blocks.start, elements);
            let values = &self.values[at..at + blocks.len() * n * TILE_HALVES];
            weigh(&task.tiles, weights, (values, n), sums, (element, elements));
        }
    }

    /// Adds weighted values that are not finite where they are seen.
    fn add_odd(&self, task: &Task<'_>, pair: usize, blocks: &Range<usize>, part: &mut Share) {
        let rows = task.rows_of(pair);
        let queries = task.queries(pair);
        for block in blocks.clone().filter(|block| self.odd[*block]) {
            let units = task.units(block);
            let slots = (0..DEPTH).filter_map(|at| Some((at, units[at % 2]?)));
            for (at, unit) in slots {
                let (n, slot) = (2 * block + at % 2, at / 2);
                let sees = |seen: &Range<usize>| task.seen_of(n, seen) >> slot & 1 == 1;
                if !sees(&task.call.seen_by_tile(&rows, task.span)) {
                    continue;
                }
                for e in 0..self.elements {
                    let value = unit.value(slot, e, self.elements);
                    if value.is_finite() {
                        continue;
                    }
                    for query in queries.clone().filter(|query| sees(&task.seen(*query))) {
                        let line = (block - blocks.start) * PAIR_QUERIES + query % PAIR_QUERIES;
                        let weight = bf16::from_bits(self.weights[line * DEPTH + at]);
                        part.values[query * self.elements + e] += weight.to_f32() * value;
                    }
                }
            }
        }
    }
}

impl<'a> Task<'a> {
    fn count(&self) -> usize {
        self.rows.len() * self.call.group()
    }

    /// Pairs of tiles of queries; the last may have one tile only, and its last lines may be nobody's.
    fn pairs(&self) -> usize {
        self.count().div_ceil(PAIR_QUERIES)
    }

    fn queries(&self, pair: usize) -> Range<usize> {
        pair * PAIR_QUERIES..((pair + 1) * PAIR_QUERIES).min(self.count())
    }

    fn tiles_of(&self, pair: usize) -> usize {
        self.queries(pair).len().div_ceil(TILE_LINES)
    }

    /// The row of a query, or the last one for nobody's.
    fn row(&self, query: usize) -> usize {
        (self.rows.start + query / self.call.group()).min(self.rows.end - 1)
    }

    fn rows_of(&self, pair: usize) -> Range<usize> {
        let queries = self.queries(pair);
        self.row(queries.start)..self.row(queries.end - 1) + 1
    }

    /// What a query's row sees of the span, counted from its start.
    fn seen(&self, query: usize) -> Range<usize> {
        self.call.seen(self.row(query), self.span)
    }

    /// The span's blocks that some of these rows see.
    fn blocks(&self, rows: &Range<usize>) -> Range<usize> {
        let seen = self.call.seen_by_tile(rows, self.span);
        if seen.is_empty() {
            return 0..0;
        }
        let (tokens, slots) = (self.call.page_tokens(), self.call.slots());
        let slot_of = |position: usize| position / tokens * slots + position % tokens;
        slot_of(seen.start) / DEPTH..slot_of(seen.end - 1) / DEPTH + 1
    }

    /// The units of a block, where they are in pages that some row sees.
    fn units(&self, block: usize) -> [Option<Unit<'a>>; 2] {
        [2 * block, 2 * block + 1].map(|unit| {
            let (call, slots) = (self.call, self.call.slots());
            let (page, first) = (unit * LANES / slots, unit * LANES % slots);
            let seen = call.seen_by_tile(self.rows, self.span);
            let pages = seen.start / call.page_tokens()..seen.end.div_ceil(call.page_tokens());
            if !pages.contains(&page) {
                return None;
            }
            Some(Unit {
                block: call.block(self.rows.start, self.head, self.span, page),
                slots,
                first,
            })
        })
    }

    /// A bit for each slot of a unit that is among these positions.
    fn seen_of(&self, unit: usize, seen: &Range<usize>) -> u16 {
        let (tokens, slots) = (self.call.page_tokens(), self.call.slots());
        let (page, first) = (unit * LANES / slots, unit * LANES % slots);
        let start = page * tokens + first;
        let there = tokens.saturating_sub(first).min(LANES);
        let below = |position: usize| (1u32 << position.saturating_sub(start).min(there)) - 1;
        (below(seen.end) & !below(seen.start)) as u16
    }

    /// Hides what the queries of a tile, the `m`th of its pair, do not see. `scores` begin with a block.
    fn hide(&self, first: usize, m: usize, block: usize, scores: &mut [f32]) {
        // The last row's sight begins furthest ahead, the first's ends first.
        let all = self.seen(first + TILE_LINES - 1).start..self.seen(first).end;
        for (i, scores) in scores.chunks_exact_mut(BLOCK_SCORES).enumerate() {
            for n in 0..2 {
                let unit = 2 * (block + i) + n;
                if self.seen_of(unit, &all) == u16::MAX {
                    continue;
                }
                let seen = std::array::from_fn(|line| self.seen_of(unit, &self.seen(first + line)));
                let at = (m * 2 + n) * TILE_FLOATS;
                hide(&self.tiles, &mut scores[at..at + TILE_FLOATS], &seen);
            }
        }
    }
}

/// This thread's tiles.
///
/// # Panics
/// If there are none: then nobody made a [`Tiled`].
fn tiles_of(call: &Call<'_>) -> Tiles {
    call.isa.tiles().expect("the level has tiles")
}

/// Tiles of elements that a tile of them lies beside, itself included.
fn side_by_side(tile: usize, elements: usize) -> usize {
    (elements / LANES - tile / 2 * 2).min(2)
}

/// Where a block's values of 16 elements are.
fn place_of_values(tile: usize, block: usize, elements: usize) -> usize {
    let n = side_by_side(tile, elements);
    (tile / 2 * 2 * SPAN_BLOCKS + block * n + tile % 2) * TILE_HALVES
}
