//! The f32 path over keys and values in f16, on every level.
//!
//! A tile of keys is widened to f32 once for up to [`DENSE_TILE`] queries, multiplied, and weighed; then its values take
//! the place of the keys. Scores and weighted values are products of two small matrices ([`add_product`]).

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
    fn weigh(scores: &mut [f32], maxima: &mut [f32], sums: &mut [f32], values: &mut [f32], cols: usize)
    ; equal_lengths: maxima sums
}

by_isa! {
    reference::widen, crate::arch::dense_attention::widen;
    fn widen(halves: &[u16], floats: &mut [f32])
    ; equal_lengths: halves floats
}

/// f32 values per conversion to f16.
const CHUNK: usize = 64;

/// Elements of a row of values: whole vectors.
fn columns(isa: Isa, head_dim: usize) -> usize {
    head_dim.next_multiple_of(isa.vector_floats())
}

/// Elements of the keys, `(head_dim, DENSE_TILE)`, and of the values, `(DENSE_TILE, columns)`, of a tile.
pub(super) fn tile_lens(isa: Isa, head_dim: usize) -> [usize; 2] {
    [head_dim, columns(isa, head_dim)].map(|floats| floats * DENSE_TILE)
}

/// Rounds keys and values to f16. Missing rows are zero.
pub(super) fn pack(
    isa: Isa,
    (keys, values): (HeadRows<'_>, HeadRows<'_>),
    (to_keys, to_values): (&mut [u16], &mut [u16]),
) {
    let cols = columns(isa, keys.head.len());
    to_keys.fill(0);
    to_values.fill(0);
    let mut halves = [f16::ZERO; CHUNK];
    for (slot, key) in keys.iter().enumerate() {
        for (first, key) in (0..).step_by(CHUNK).zip(key.chunks(CHUNK)) {
            let halves = &mut halves[..key.len()];
            halves.convert_from_f32_slice(key);
            for (d, half) in (first..).zip(&*halves) {
                to_keys[d * DENSE_TILE + slot] = half.to_bits();
            }
        }
    }
    for (value, to) in values.iter().zip(to_values.chunks_exact_mut(cols)) {
        let to = to[..value.len()].reinterpret_cast_mut::<f16>();
        to.convert_from_f32_slice(value);
    }
}

/// Buffers of one worker.
pub(super) struct VectorWorkspace {
    isa: Isa,
    /// Columns of the weighted values.
    cols: usize,
    /// Scaled queries, `(DENSE_TILE, head_dim)`.
    queries: ZeroedBuffer<f32>,
    /// Keys or values of a tile.
    floats: ZeroedBuffer<f32>,
    /// Scores, then weights, `(DENSE_TILE, DENSE_TILE)`.
    scores: ZeroedBuffer<f32>,
    /// Weighted values, `(DENSE_TILE, cols)`.
    values: ZeroedBuffer<f32>,
    /// Largest score of each query.
    maxima: [f32; DENSE_TILE],
    /// Sum of weights of each query.
    sums: [f32; DENSE_TILE],
}

impl VectorWorkspace {
    pub(super) fn new(shape: &DenseShape) -> Self {
        let cols = columns(shape.isa, shape.head_dim);
        Self {
            isa: shape.isa,
            cols,
            queries: ZeroedBuffer::new(DENSE_TILE * shape.head_dim),
            floats: ZeroedBuffer::new(DENSE_TILE * cols),
            scores: ZeroedBuffer::new(DENSE_TILE * DENSE_TILE),
            values: ZeroedBuffer::new(DENSE_TILE * cols),
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
        let (isa, cols, dim) = (self.isa, self.cols, call.shape.head_dim);
        let n = part.queries.len();
        let queries = &mut self.queries[..n * dim];
        for (query, to) in part.queries.clone().zip(queries.chunks_exact_mut(dim)) {
            for (to, x) in to.iter_mut().zip(&call.q[call.place(query, head)]) {
                *to = x * call.scale;
            }
        }
        let (scores, values) = (
            &mut self.scores[..n * DENSE_TILE],
            &mut self.values[..n * cols],
        );
        let (maxima, sums) = (&mut self.maxima[..n], &mut self.sums[..n]);
        values.fill(0.0);
        maxima.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        let (all_keys, all_values) = call.head(head);
        let [key_len, value_len] = tile_lens(isa, dim);
        for tile in part.keys.start / DENSE_TILE..part.keys.end.div_ceil(DENSE_TILE) {
            let first = tile * DENSE_TILE;
            let seen =
                part.keys.start.max(first) - first..part.keys.end.min(first + DENSE_TILE) - first;
            let keys = &mut self.floats[..key_len];
            widen(isa, &all_keys[tile * key_len..][..key_len], keys);
            scores.fill(0.0);
            add_product(isa, queries, dim, dim, keys, scores, DENSE_TILE);
            for scores in scores.chunks_exact_mut(DENSE_TILE) {
                scores[..seen.start].fill(f32::NEG_INFINITY);
                scores[seen.end..].fill(f32::NEG_INFINITY);
            }
            weigh(isa, scores, maxima, sums, values, cols);
            let floats = &mut self.floats[..value_len];
            widen(isa, &all_values[tile * value_len..][..value_len], floats);
            let (weights, floats) = (&scores[seen.start..], &floats[seen.start * cols..]);
            add_product(isa, weights, DENSE_TILE, seen.len(), floats, values, cols);
        }
    }

    /// Writes a head of the result of a query.
    pub(super) fn write(&self, number: usize, out: &mut [f32]) {
        let (sum, values) = (self.sums[number], &self.values[number * self.cols..]);
        for (out, value) in out.iter_mut().zip(values) {
            *out = value / sum;
        }
    }
}
