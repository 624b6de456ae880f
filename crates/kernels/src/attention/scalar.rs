//! What the inner loops of attention compute, said plainly.

use half::f16;

/// `scores[i, slot] = queries[i] . keys[slot]` for queries `(n, dim)` and turned keys `(dim, slots)`;
/// rows of scores are `stride` apart.
pub(super) fn scores(queries: &[f32], dim: usize, keys: &[u16], scores: &mut [f32], stride: usize) {
    let slots = keys.len() / dim;
    for (query, scores) in queries.chunks_exact(dim).zip(scores.chunks_mut(stride)) {
        let scores = &mut scores[..slots];
        scores.fill(0.0);
        for (x, keys) in query.iter().zip(keys.chunks_exact(slots)) {
            for (score, key) in scores.iter_mut().zip(keys) {
                *score += x * f16::from_bits(*key).to_f32();
            }
        }
    }
}

/// Turns scores into weights `e^(score - max)`; gives the largest score and the weights' sum. All
/// minus infinity: weights and sum are zero.
pub(super) fn soften(scores: &mut [f32]) -> (f32, f32) {
    let max = scores.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    if max == f32::NEG_INFINITY {
        scores.fill(0.0);
        return (max, 0.0);
    }
    let mut sum = 0.0;
    for score in scores {
        *score = (*score - max).exp();
        sum += *score;
    }
    (max, sum)
}

/// `sums[i] += weights[i, t] * values[t]` over rising `t`, for values `(_, elements)` and sums
/// `(n, elements)`; rows of weights are `stride` apart.
pub(super) fn weigh(
    sums: &mut [f32],
    elements: usize,
    weights: &[f32],
    stride: usize,
    values: &[u16],
) {
    for (sums, weights) in sums.chunks_exact_mut(elements).zip(weights.chunks(stride)) {
        for (weight, values) in weights.iter().zip(values.chunks_exact(elements)) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += weight * f16::from_bits(*value).to_f32();
            }
        }
    }
}

/// `whole = whole * old + part * new`.
pub(super) fn blend(whole: &mut [f32], old: f32, part: &[f32], new: f32) {
    for (whole, part) in whole.iter_mut().zip(part) {
        *whole = *whole * old + part * new;
    }
}
