//! The AMX path: keys, values, scaled queries and weights in bf16, sums in f32.
//!
//! Scores are computed transposed, a line for each key and a column for each query, so that maxima and sums of sixteen
//! queries are one vector each, and keys are stored as they come. The weighted values are transposed, too: a line for each
//! element. Only queries (once for a part) and values (once for a layer) are transposed, and the results.
//!
//! **Arithmetic.** Queries are multiplied by the scale and by log2(e) before they are rounded. For each 32 elements, in
//! order, the products of the first 16 and of the last 16 are summed separately, then both sums are added. In blocks of
//! [`BLOCK_KEYS`] keys, the first of which begins at a multiple of [`GROUP`], the maxima are raised; weights are
//! `2^(score - max)` with relative error 2^-18, rounded to bf16; the sum of weights adds the rounded ones, keys `i` and
//! `i + 16` of each [`GROUP`] after each other. Values are summed as elements are.

use super::{DenseCall, DenseShape, DenseSpan, HeadRows};
use crate::arch::amx::{AmxTiles, TILE_ROWS};
use crate::arch::amx_attention_pack::{TILE_BF16S, TILE_DEPTH};
use crate::arch::amx_dense_attention::{
    PAIR_LINES, QueryState, add_values, correct_values, pack_keys, pack_queries, pack_values,
    score_keys, weigh_scores, write_rows,
};
use crate::kv::LANES;
use crate::memory::ZeroedBuffer;
use std::ops::Range;

/// Keys whose values one instruction adds.
pub(super) const GROUP: usize = TILE_DEPTH;
/// Groups of keys between two corrections of the maxima.
const BLOCK_GROUPS: usize = 4;
/// Keys between two corrections of the maxima.
pub(super) const BLOCK_KEYS: usize = BLOCK_GROUPS * GROUP;
/// Queries of a pair of tiles, which are computed together.
const PAIR: usize = 2 * TILE_ROWS;
/// Pairs of a part.
const PAIRS: usize = super::DENSE_TILE / PAIR;

/// Elements of the keys, `(DENSE_TILE / 16, head_dim / 32, 16, 32)`, and of the values,
/// `(DENSE_TILE / 32, head_dim / 16, 16, 32)`, of a tile.
pub(super) fn tile_lens(head_dim: usize) -> [usize; 2] {
    let tiles = super::DENSE_TILE / TILE_ROWS * head_dim.div_ceil(TILE_DEPTH);
    let value_tiles = super::DENSE_TILE / GROUP * head_dim.div_ceil(LANES);
    [tiles * TILE_BF16S, value_tiles * TILE_BF16S]
}

/// Rounds keys and values to bf16. Missing rows and elements are zero.
pub(super) fn pack(
    permission: &AmxTiles,
    (keys, values): (HeadRows<'_>, HeadRows<'_>),
    (to_keys, to_values): (&mut [u16], &mut [u16]),
) {
    let dim = keys.head.len();
    let key_tile = dim.div_ceil(TILE_DEPTH) * TILE_BF16S;
    for (number, to) in to_keys.chunks_exact_mut(key_tile).enumerate() {
        pack_keys(permission, &lines(&keys, number * TILE_ROWS), dim, to);
    }
    let group = dim.div_ceil(LANES) * TILE_BF16S;
    for (number, to) in to_values.chunks_exact_mut(group).enumerate() {
        let first = lines(&values, number * GROUP);
        let second = lines(&values, number * GROUP + TILE_ROWS);
        pack_values(permission, [&first, &second], dim, to);
    }
}

/// Sixteen rows of a head from `first` on; missing rows are empty.
fn lines<'a>(rows: &HeadRows<'a>, first: usize) -> [&'a [f32]; TILE_ROWS] {
    let mut lines = [&[][..]; TILE_ROWS];
    for (line, row) in lines.iter_mut().zip(rows.iter().skip(first)) {
        *line = row;
    }
    lines
}

/// Buffers of one worker.
pub(super) struct TileWorkspace {
    /// Packed queries, `(pairs, head_dim / 32, 2, 16, 32)`.
    queries: ZeroedBuffer<u16>,
    /// Scores of a block for a pair, `(keys / 16, 2, 16, 16)`.
    scores: ZeroedBuffer<f32>,
    /// Weights of a block for a pair, `(groups, 2, 16, 32)`.
    weights: ZeroedBuffer<u16>,
    /// Weighted values, `(pairs, head_dim / 16, 2, 16, 16)`.
    values: ZeroedBuffer<f32>,
    states: [[QueryState; 2]; PAIRS],
    /// The result, `(DENSE_TILE, head_dim)`.
    rows: ZeroedBuffer<f32>,
    head_dim: usize,
}

impl TileWorkspace {
    pub(super) fn new(shape: &DenseShape) -> Self {
        let dim = shape.head_dim;
        Self {
            queries: ZeroedBuffer::new(PAIRS * pair_queries(dim)),
            scores: ZeroedBuffer::new(BLOCK_KEYS * PAIR),
            weights: ZeroedBuffer::new(BLOCK_KEYS * PAIR),
            values: ZeroedBuffer::new(PAIRS * pair_values(dim)),
            states: [[QueryState::new(); 2]; PAIRS],
            rows: ZeroedBuffer::new(super::DENSE_TILE * dim),
            head_dim: dim,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let halves = self.queries.len() + self.weights.len();
        let floats = self.scores.len() + self.values.len() + self.rows.len();
        halves * size_of::<u16>() + floats * size_of::<f32>() + size_of_val(&self.states)
    }

    /// Computes one head of the queries of a part.
    ///
    /// # Panics
    /// If the level has no AMX; a [`TileWorkspace`] exists only for levels with AMX.
    pub(super) fn attend(&mut self, call: &DenseCall<'_>, part: &DenseSpan, head: usize) {
        let permission = call.shape.isa.tiles().expect("the level has tiles");
        let dim = self.head_dim;
        let pairs = part.queries.len().div_ceil(PAIR);
        self.load_queries(&permission, call, &part.queries, head);
        self.values[..pairs * pair_values(dim)].fill(0.0);
        self.states = [[QueryState::new(); 2]; PAIRS];
        let (keys, values) = call.head(head);
        let groups = part.keys.start / GROUP..part.keys.end.div_ceil(GROUP);
        for first in groups.clone().step_by(BLOCK_GROUPS) {
            let block = first..groups.end.min(first + BLOCK_GROUPS);
            let seen = part.keys.start.max(first * GROUP) - first * GROUP
                ..part.keys.end.min(block.end * GROUP) - first * GROUP;
            let key_group = 2 * dim.div_ceil(TILE_DEPTH) * TILE_BF16S;
            let value_group = dim.div_ceil(LANES) * TILE_BF16S;
            let keys = &keys[block.start * key_group..block.end * key_group];
            let values = &values[block.start * value_group..block.end * value_group];
            for pair in 0..pairs {
                self.add_block(&permission, pair, (keys, values), &seen);
            }
        }
        for pair in 0..pairs {
            let values = &self.values[pair * pair_values(dim)..][..pair_values(dim)];
            for (n, state) in self.states[pair].iter().enumerate() {
                let first = (pair * PAIR + n * TILE_ROWS) * dim;
                let rows = &mut self.rows[first..first + TILE_ROWS * dim];
                write_rows(&permission, (values, n), state, rows);
            }
        }
    }

    /// Adds a block of keys to the queries of a pair.
    fn add_block(
        &mut self,
        permission: &AmxTiles,
        pair: usize,
        (keys, values): (&[u16], &[u16]),
        seen: &Range<usize>,
    ) {
        let dim = self.head_dim;
        let queries = &self.queries[pair * pair_queries(dim)..][..pair_queries(dim)];
        let groups = keys.len() / queries.len();
        let scores = &mut self.scores[..groups * GROUP * PAIR];
        score_keys(permission, queries, keys, scores);
        let weights = &mut self.weights[..groups * GROUP * PAIR];
        let sums = &mut self.values[pair * pair_values(dim)..][..pair_values(dim)];
        for n in 0..2 {
            for line in (0..seen.start).chain(seen.end..groups * GROUP) {
                let at = (line / TILE_ROWS * 2 + n) * PAIR_LINES + line % TILE_ROWS * LANES;
                scores[at..at + LANES].fill(f32::NEG_INFINITY);
            }
            let state = &mut self.states[pair][n];
            if let Some(factor) = weigh_scores(permission, (scores, n), state, weights) {
                correct_values(permission, (sums, n), &factor);
            }
        }
        add_values(permission, values, weights, sums);
    }

    fn load_queries(
        &mut self,
        permission: &AmxTiles,
        call: &DenseCall<'_>,
        queries: &Range<usize>,
        head: usize,
    ) {
        let len = pair_queries(self.head_dim);
        let scale = call.scale * std::f32::consts::LOG2_E;
        for first in (0..queries.len()).step_by(TILE_ROWS) {
            let mut lines = [&[][..]; TILE_ROWS];
            let tile = queries.clone().skip(first);
            for (line, query) in lines.iter_mut().zip(tile) {
                *line = &call.q[call.place(query, head)];
            }
            let to = &mut self.queries[first / PAIR * len..][..len];
            let n = first / TILE_ROWS % 2;
            pack_queries(permission, &lines, (self.head_dim, scale), (to, n));
        }
    }

    /// Writes a head of the result of a query.
    pub(super) fn write(&self, number: usize, out: &mut [f32]) {
        out.copy_from_slice(&self.rows[number * self.head_dim..][..self.head_dim]);
    }
}

/// Elements of the packed queries of a pair.
fn pair_queries(head_dim: usize) -> usize {
    2 * head_dim.div_ceil(TILE_DEPTH) * TILE_BF16S
}

/// Weighted values of a pair.
fn pair_values(head_dim: usize) -> usize {
    2 * head_dim.div_ceil(LANES) * PAIR_LINES
}
