//! Attention over keys and values of 8 bits, said plainly.
//!
//! A query is taken as whole numbers of 15 bits and one scale, so that its product with a quantum of
//! keys is a whole number: exact, and the same in whatever order it is added up. Its error is a
//! 32,768th of the query's largest element, far below that of the keys. Values become f32, which holds
//! `code * scale` exactly, and are weighed as those of f16 are.

use crate::kv::{Codes, QUANTUM};
use crate::layout::attention::{LOW_BITS, OFFSET, QueryCodes};
use half::f16;

/// The largest code of a query, in size.
const QUERY_MAX: f32 = 16_383.0;
/// Queries as whole numbers. `elements` is `head_dim` with padding, which is zero.
pub(super) struct QueryTable {
    elements: usize,
    /// `(queries, elements)`.
    codes: Vec<i16>,
    /// Codes with [`OFFSET`], their upper eight bits and their lower seven: `(queries, elements / 4, 2, 4)`.
    planes: Vec<u8>,
    /// `(queries)`.
    scales: Vec<f32>,
}

impl QueryTable {
    pub(super) fn new(queries: usize, elements: usize) -> Self {
        Self {
            elements,
            codes: vec![0; queries * elements],
            planes: vec![0; queries * elements * 2],
            scales: vec![0.0; queries],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.codes.len() * 2 + self.planes.len() + self.scales.len() * size_of::<f32>()
    }

    /// Takes queries `(_, dim)`. One that is not finite gets a scale that is NaN.
    pub(super) fn take(&mut self, queries: &[f32], dim: usize) {
        let elements = self.elements;
        for (i, query) in queries.chunks_exact(dim).enumerate() {
            let codes = &mut self.codes[i * elements..(i + 1) * elements];
            self.scales[i] = encode(query, codes);
            let planes = &mut self.planes[i * elements * 2..(i + 1) * elements * 2];
            for (planes, codes) in planes.chunks_exact_mut(8).zip(codes.chunks_exact(4)) {
                for (e, code) in codes.iter().enumerate() {
                    let code = i32::from(*code) + OFFSET;
                    planes[e] = (code >> LOW_BITS) as u8;
                    planes[4 + e] = (code & ((1 << LOW_BITS) - 1)) as u8;
                }
            }
        }
    }

    /// The first `n`.
    pub(super) fn head(&self, n: usize) -> QueryCodes<'_> {
        QueryCodes {
            elements: self.elements,
            codes: &self.codes[..n * self.elements],
            planes: &self.planes[..n * self.elements * 2],
            scales: &self.scales[..n],
        }
    }
}

/// Writes a query's codes and gives their scale.
fn encode(query: &[f32], codes: &mut [i16]) -> f32 {
    let most = query.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let finite = query.iter().fold(true, |all, x| all & x.is_finite());
    if !finite || most == 0.0 {
        codes.fill(0);
        return if finite { 0.0 } else { f32::NAN };
    }
    // In two steps: the inverse of a very small number is infinite.
    let scale = most / QUERY_MAX;
    for (code, x) in codes.iter_mut().zip(query) {
        *code = (x / most * QUERY_MAX).round_ties_even() as i16;
    }
    codes[query.len()..].fill(0);
    scale
}

/// `scores[i, slot] = queries[i] . keys[slot]` for keys `(elements / 4, slots, 4)`; rows of scores are
/// `stride` apart.
pub(super) fn scores(
    queries: QueryCodes<'_>,
    keys: Codes<'_>,
    scores: &mut [f32],
    stride: usize,
    _ahead: &[u16],
) {
    let elements = queries.elements;
    let slots = keys.codes.len() / elements;
    let rows = queries.codes.chunks_exact(elements).zip(queries.scales);
    for ((query, factor), scores) in rows.zip(scores.chunks_mut(stride)) {
        let scores = &mut scores[..slots];
        scores.fill(0.0);
        let quanta = query
            .chunks(QUANTUM)
            .zip(keys.codes.chunks(QUANTUM * slots));
        for ((query, keys), scales) in quanta.zip(keys.scales.chunks_exact(slots)) {
            for (slot, (score, scale)) in scores.iter_mut().zip(scales).enumerate() {
                let mut dot = 0;
                for (query, keys) in query.as_chunks::<4>().0.iter().zip(keys.chunks(4 * slots)) {
                    let quad = query.iter().zip(&keys[slot * 4..][..4]);
                    dot += quad
                        .map(|(q, k)| i32::from(*q) * i32::from(*k))
                        .sum::<i32>();
                }
                *score += dot as f32 * f16::from_bits(*scale).to_f32();
            }
        }
        for score in scores {
            *score *= factor;
        }
    }
}

/// `sums[i] += weights[i, t] * values[slot + t]` over rising `t < count`, for values `(slots, elements)`
/// and sums `(n, elements)`; rows of weights are `stride` apart.
pub(super) fn weigh(
    sums: &mut [f32],
    elements: usize,
    weights: &[f32],
    stride: usize,
    values: Codes<'_>,
    (slot, count): (usize, usize),
    _ahead: &[u16],
) {
    let slots = values.codes.len() / elements;
    for t in 0..count {
        let at = slot + t;
        let row = &values.codes[at * elements..][..elements];
        for (quantum, codes) in row.chunks(QUANTUM).enumerate() {
            let scale = f16::from_bits(values.scales[quantum * slots + at]).to_f32();
            let rows = sums.chunks_exact_mut(elements).zip(weights.chunks(stride));
            for (sums, weights) in rows {
                for (sum, code) in sums[quantum * QUANTUM..].iter_mut().zip(codes) {
                    *sum += weights[t] * (f32::from(*code) * scale);
                }
            }
        }
    }
}
