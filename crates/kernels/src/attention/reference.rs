//! Reference implementations of the attention kernels.

use crate::layout::softmax_shift;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// f16 values per conversion to f32.
const CHUNK: usize = 64;

/// `scores[i, slot] = queries[i] . keys[slot]` for queries `(n, dim)` and transposed keys `(dim, slots)`; rows
/// of scores are `stride` apart.
///
/// `upcoming`, here and below, is memory that vector paths prefetch.
pub(super) fn qk_scores(
    queries: &[f32],
    dim: usize,
    keys: &[u16],
    scores: &mut [f32],
    stride: usize,
    _upcoming: &[u16],
) {
    let slots = keys.len() / dim;
    let n = queries.len() / dim;
    for scores in scores.chunks_mut(stride).take(n) {
        scores[..slots].fill(0.0);
    }
    for (d, keys) in keys.chunks_exact(slots).enumerate() {
        for_each_chunk(keys, |start, keys| {
            for (query, scores) in queries.chunks_exact(dim).zip(scores.chunks_mut(stride)) {
                for (score, key) in scores[start..].iter_mut().zip(keys) {
                    *score += query[d] * key;
                }
            }
        });
    }
}

/// Turns scores into weights `e^(score - max)`; returns the maximum and the sum of weights. If all scores are
/// -inf, weights and sum are zero. A NaN makes the sum NaN.
pub(super) fn softmax(scores: &mut [f32]) -> (f32, f32) {
    let max = scores.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    let (mut sum, shift) = (0.0, softmax_shift(max));
    for score in scores {
        *score = (*score - shift).exp();
        sum += *score;
    }
    (max, sum)
}

/// `sums[i] += weights[i, t] * values[t]` over rising `t`, for values `(_, elements)` and sums
/// `(n, elements)`; rows of weights are `stride` apart.
pub(super) fn accumulate_pv(
    sums: &mut [f32],
    elements: usize,
    weights: &[f32],
    stride: usize,
    values: &[u16],
    _upcoming: &[u16],
) {
    for (t, values) in values.chunks_exact(elements).enumerate() {
        for_each_chunk(values, |start, values| {
            for (sums, weights) in sums.chunks_exact_mut(elements).zip(weights.chunks(stride)) {
                for (sum, value) in sums[start..].iter_mut().zip(values) {
                    *sum += weights[t] * value;
                }
            }
        });
    }
}

/// `merged = merged * old + part * new`.
pub(super) fn rescale_add(merged: &mut [f32], old: f32, part: &[f32], new: f32) {
    for (merged, part) in merged.iter_mut().zip(part) {
        *merged = *merged * old + part * new;
    }
}

/// Converts f16 to f32 in chunks: `work(index of the first, values)`.
fn for_each_chunk(values: &[u16], mut work: impl FnMut(usize, &[f32])) {
    let mut floats = [0.0; CHUNK];
    for (chunk, values) in values.chunks(CHUNK).enumerate() {
        let floats = &mut floats[..values.len()];
        values
            .reinterpret_cast::<f16>()
            .convert_to_f32_slice(floats);
        work(chunk * CHUNK, floats);
    }
}
