//! The f32 path over keys and values in f16, on every level.
//!
//! A tile of keys is widened to f32 once for up to [`PART_QUERIES`] queries, multiplied, and weighed; then its values take
//! the place of the keys. Scores and weighted values are products of two small matrices ([`add_product`]), both with a
//! column for each query: maxima and sums of a vector of queries are one vector, and no vector is ever reduced. The columns
//! are computed in panels, so that a panel and the tile fit the first cache together.

use super::{DENSE_TILE, DenseCall, DenseShape, DenseSpan, HeadRows, reference};
use crate::Isa;
use crate::dispatch::by_isa;
use crate::kv::LANES;
use crate::memory::ZeroedBuffer;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use std::ops::Range;

by_isa! {
    reference::add_product, crate::arch::dense_attention::add_product;
    fn add_product(a: &[f32], stride: usize, inner: usize, b: &[f32], c: (&mut [f32], usize), is_fresh: bool)
}

by_isa! {
    reference::weigh, crate::arch::dense_attention::weigh;
    pub(super) fn weigh(scores: &mut [f32], maxima: &mut [f32], sums: &mut [f32], values: &mut [f32])
    ; equal_lengths: maxima sums
}

by_isa! {
    reference::widen, crate::arch::dense_attention::widen;
    fn widen(halves: &[u16], floats: &mut [f32])
    ; equal_lengths: halves floats
}

/// f32 values per conversion to f16.
const CHUNK: usize = 64;
/// Most queries of a part.
pub(super) const PART_QUERIES: usize = 2 * DENSE_TILE;

/// Elements of the keys, `(DENSE_TILE, head_dim)`, and of the values, `(head_dim, DENSE_TILE)`, of a tile.
pub(super) fn tile_lens(head_dim: usize) -> [usize; 2] {
    [head_dim * DENSE_TILE; 2]
}

/// Rounds keys and values to f16. Missing rows are zero.
pub(super) fn pack(
    (keys, values): (HeadRows<'_>, HeadRows<'_>),
    (to_keys, to_values): (&mut [u16], &mut [u16]),
) {
    let dim = keys.head.len();
    to_keys.fill(0);
    to_values.fill(0);
    for (key, to) in keys.iter().zip(to_keys.chunks_exact_mut(dim)) {
        to.reinterpret_cast_mut::<f16>().convert_from_f32_slice(key);
    }
    let mut halves = [f16::ZERO; CHUNK];
    for (slot, value) in values.iter().enumerate() {
        for (first, value) in (0..).step_by(CHUNK).zip(value.chunks(CHUNK)) {
            let halves = &mut halves[..value.len()];
            halves.convert_from_f32_slice(value);
            for (d, half) in (first..).zip(&*halves) {
                to_values[d * DENSE_TILE + slot] = half.to_bits();
            }
        }
    }
}

/// Columns of a panel: as many as [`add_product`] multiplies at a time.
fn panel_columns(isa: Isa) -> usize {
    let width = isa.vector_floats();
    width * if width == LANES { 4 } else { 2 }
}

/// Buffers of one worker. Each begins with what belongs to the first panel.
pub(super) struct VectorWorkspace {
    isa: Isa,
    head_dim: usize,
    /// Scaled queries, `(head_dim, columns)` of each panel.
    queries: ZeroedBuffer<f32>,
    /// Keys, or values, of a tile.
    floats: ZeroedBuffer<f32>,
    /// Scores, then weights, `(DENSE_TILE, columns)` of each panel.
    scores: ZeroedBuffer<f32>,
    /// Weighted values, `(head_dim, columns)` of each panel.
    values: ZeroedBuffer<f32>,
    /// Queries of the part, in whole vectors.
    columns: usize,
    /// Largest score of each query.
    maxima: [f32; PART_QUERIES],
    /// Sum of weights of each query.
    sums: [f32; PART_QUERIES],
}

impl VectorWorkspace {
    pub(super) fn new(shape: &DenseShape) -> Self {
        let part = PART_QUERIES * shape.head_dim;
        Self {
            isa: shape.isa,
            head_dim: shape.head_dim,
            queries: ZeroedBuffer::new(part),
            floats: ZeroedBuffer::new(DENSE_TILE * shape.head_dim),
            scores: ZeroedBuffer::new(DENSE_TILE * PART_QUERIES),
            values: ZeroedBuffer::new(part),
            columns: 0,
            maxima: [0.0; PART_QUERIES],
            sums: [0.0; PART_QUERIES],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let buffers = [&self.queries, &self.floats, &self.scores, &self.values];
        let floats: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        (floats + 2 * PART_QUERIES) * size_of::<f32>()
    }

    /// Computes one head of the queries of a part.
    pub(super) fn attend(&mut self, call: &DenseCall<'_>, part: &DenseSpan, head: usize) {
        self.load_queries(call, part, head);
        let (isa, dim, cols) = (self.isa, self.head_dim, self.columns);
        self.values[..dim * cols].fill(0.0);
        self.maxima[..cols].fill(f32::NEG_INFINITY);
        self.sums[..cols].fill(0.0);
        let (all_keys, all_values) = call.head(head);
        let len = dim * DENSE_TILE;
        for tile in part.keys.start / DENSE_TILE..part.keys.end.div_ceil(DENSE_TILE) {
            let first = tile * DENSE_TILE;
            let seen =
                part.keys.start.max(first) - first..part.keys.end.min(first + DENSE_TILE) - first;
            widen(isa, &all_keys[tile * len..][..len], &mut self.floats);
            let keys = &self.floats[seen.start * dim..];
            for panel in panels(isa, cols) {
                let queries = &self.queries[panel.start * dim..panel.end * dim];
                let values = &mut self.values[panel.start * dim..panel.end * dim];
                let scores = &mut self.scores[panel.start * DENSE_TILE..];
                let scores = &mut scores[..panel.len() * seen.len()];
                add_product(isa, keys, dim, dim, queries, (scores, panel.len()), true);
                let (maxima, sums) = (&mut self.maxima[panel.clone()], &mut self.sums[panel]);
                weigh(isa, scores, maxima, sums, values);
            }
            widen(isa, &all_values[tile * len..][..len], &mut self.floats);
            let floats = &self.floats[seen.start..];
            for panel in panels(isa, cols) {
                let weights = &self.scores[panel.start * DENSE_TILE..];
                let weights = &weights[..panel.len() * seen.len()];
                let values = &mut self.values[panel.start * dim..panel.end * dim];
                let values = (values, panel.len());
                add_product(isa, floats, DENSE_TILE, seen.len(), weights, values, false);
            }
        }
    }

    /// Scales the queries of a part, a column for each, so that scores are logarithms to the base of 2. Columns without a
    /// query are zero.
    fn load_queries(&mut self, call: &DenseCall<'_>, part: &DenseSpan, head: usize) {
        let (count, dim, width) = (part.queries.len(), self.head_dim, self.isa.vector_floats());
        self.columns = count.next_multiple_of(width);
        let scale = call.scale * std::f32::consts::LOG2_E;
        for panel in panels(self.isa, self.columns) {
            let queries = &mut self.queries[panel.start * dim..panel.end * dim];
            queries.fill(0.0);
            let some = part.queries.clone().skip(panel.start).take(panel.len());
            for (col, query) in some.enumerate() {
                let query = &call.q[call.place(query, head)];
                for (line, x) in queries.chunks_exact_mut(panel.len()).zip(query) {
                    line[col] = x * scale;
                }
            }
        }
    }

    /// Writes a head of the result of a query.
    pub(super) fn write(&self, number: usize, out: &mut [f32]) {
        let step = panel_columns(self.isa);
        let first = number / step * step;
        let cols = step.min(self.columns - first);
        let lines = self.values[first * self.head_dim..].chunks_exact(cols);
        for (out, line) in out.iter_mut().zip(lines) {
            *out = line[number - first] / self.sums[number];
        }
    }
}

/// The panels of so many columns, of which the last may be shorter.
fn panels(isa: Isa, columns: usize) -> impl Iterator<Item = Range<usize>> {
    let step = panel_columns(isa);
    let starts = (0..columns).step_by(step);
    starts.map(move |first| first..columns.min(first + step))
}
