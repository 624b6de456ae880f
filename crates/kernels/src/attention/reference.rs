//! What the inner loops of attention compute, said plainly.

use crate::layout::attention::softmax_shift;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// f16s turned into f32 at a time.
const CHUNK: usize = 64;

/// `scores[i, slot] = queries[i] . keys[slot]` for queries `(n, dim)` and turned keys `(dim, slots)`;
/// rows of scores are `stride` apart.
///
/// `ahead`, here and below, is asked for meanwhile by paths that are fast enough to wait for memory.
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

/// Turns scores into weights `e^(score - max)`; gives the largest score and the weights' sum. All
/// minus infinity: weights and sum are zero. A NaN makes the sum NaN.
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

/// `whole = whole * old + part * new`.
pub(super) fn rescale_add(whole: &mut [f32], old: f32, part: &[f32], new: f32) {
    for (whole, part) in whole.iter_mut().zip(part) {
        *whole = *whole * old + part * new;
    }
}

/// Turns f16s into f32s, some at a time: `work(index of the first, values)`.
fn for_each_chunk(halves: &[u16], mut work: impl FnMut(usize, &[f32])) {
    let mut floats = [0.0; CHUNK];
    for (chunk, halves) in halves.chunks(CHUNK).enumerate() {
        let floats = &mut floats[..halves.len()];
        halves
            .reinterpret_cast::<f16>()
            .convert_to_f32_slice(floats);
        work(chunk * CHUNK, floats);
    }
}
