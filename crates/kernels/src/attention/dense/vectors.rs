//! The f32 path over keys and values in f16, on every level.
//!
//! A tile of keys is widened to f32 once for up to [`DENSE_TILE`] queries, multiplied, and weighed; then its values take
//! the place of the keys. Scores and weighted values are products of two small matrices ([`add_product`]), both with a
//! column for each query: maxima and sums of a vector of queries are one vector, and no vector is ever reduced.

use super::{DENSE_TILE, DenseCall, DenseShape, DenseSpan, HeadRows, reference};
use crate::Isa;
use crate::dispatch::by_isa;
use crate::memory::ZeroedBuffer;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

by_isa! {
    reference::add_product, crate::arch::dense_attention::add_product;
    fn add_product(a: &[f32], stride: usize, inner: usize, b: &[f32], c: &mut [f32], cols: usize)
}

by_isa! {
    reference::weigh, crate::arch::dense_attention::weigh;
    fn weigh(scores: &mut [f32], maxima: &mut [f32], sums: &mut [f32], values: &mut [f32])
    ; equal_lengths: maxima sums
}

by_isa! {
    reference::widen, crate::arch::dense_attention::widen;
    fn widen(halves: &[u16], floats: &mut [f32])
    ; equal_lengths: halves floats
}

/// f32 values per conversion to f16.
const CHUNK: usize = 64;

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

/// Buffers of one worker.
pub(super) struct VectorWorkspace {
    isa: Isa,
    /// Scaled queries, `(head_dim, columns)`.
    queries: ZeroedBuffer<f32>,
    /// Keys, or values, of a tile.
    floats: ZeroedBuffer<f32>,
    /// Scores, then weights, `(DENSE_TILE, columns)`.
    scores: ZeroedBuffer<f32>,
    /// Weighted values, `(head_dim, columns)`.
    values: ZeroedBuffer<f32>,
    /// Queries of the part, in whole vectors.
    columns: usize,
    /// Largest score of each query.
    maxima: [f32; DENSE_TILE],
    /// Sum of weights of each query.
    sums: [f32; DENSE_TILE],
}

impl VectorWorkspace {
    pub(super) fn new(shape: &DenseShape) -> Self {
        let tile = DENSE_TILE * shape.head_dim;
        Self {
            isa: shape.isa,
            queries: ZeroedBuffer::new(tile),
            floats: ZeroedBuffer::new(tile),
            scores: ZeroedBuffer::new(DENSE_TILE * DENSE_TILE),
            values: ZeroedBuffer::new(tile),
            columns: 0,
            maxima: [0.0; DENSE_TILE],
            sums: [0.0; DENSE_TILE],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let buffers = [&self.queries, &self.floats, &self.scores, &self.values];
        let floats: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        (floats + 2 * DENSE_TILE) * size_of::<f32>()
    }

    /// Computes one head of the queries of a part.
    pub(super) fn attend(&mut self, call: &DenseCall<'_>, part: &DenseSpan, head: usize) {
        let (isa, dim) = (self.isa, call.shape.head_dim);
        self.load_queries(call, part, head);
        let cols = self.columns;
        let queries = &self.queries[..dim * cols];
        let values = &mut self.values[..dim * cols];
        let (maxima, sums) = (&mut self.maxima[..cols], &mut self.sums[..cols]);
        values.fill(0.0);
        maxima.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        let (all_keys, all_values) = call.head(head);
        let len = dim * DENSE_TILE;
        for tile in part.keys.start / DENSE_TILE..part.keys.end.div_ceil(DENSE_TILE) {
            let first = tile * DENSE_TILE;
            let seen =
                part.keys.start.max(first) - first..part.keys.end.min(first + DENSE_TILE) - first;
            widen(isa, &all_keys[tile * len..][..len], &mut self.floats);
            let scores = &mut self.scores[..seen.len() * cols];
            scores.fill(0.0);
            let keys = &self.floats[seen.start * dim..];
            add_product(isa, keys, dim, dim, queries, scores, cols);
            weigh(isa, scores, maxima, sums, values);
            widen(isa, &all_values[tile * len..][..len], &mut self.floats);
            let floats = &self.floats[seen.start..];
            add_product(isa, floats, DENSE_TILE, seen.len(), scores, values, cols);
        }
    }

    /// Scales the queries of a part, a column for each. Columns without a query are zero.
    fn load_queries(&mut self, call: &DenseCall<'_>, part: &DenseSpan, head: usize) {
        let cols = part
            .queries
            .len()
            .next_multiple_of(self.isa.vector_floats());
        self.columns = cols;
        let queries = &mut self.queries[..call.shape.head_dim * cols];
        queries.fill(0.0);
        for (col, query) in part.queries.clone().enumerate() {
            let query = &call.q[call.place(query, head)];
            for (line, x) in queries.chunks_exact_mut(cols).zip(query) {
                line[col] = x * call.scale;
            }
        }
    }

    /// Writes a head of the result of a query.
    pub(super) fn write(&self, number: usize, out: &mut [f32]) {
        let lines = self.values.chunks_exact(self.columns);
        for (out, line) in out.iter_mut().zip(lines) {
            *out = line[number] / self.sums[number];
        }
    }
}
