//! Reference implementations of the vector kernels.

use super::DENSE_TILE;
use crate::layout::softmax_shift;

/// `c += a * b` for `a` `(n, inner)` in rows of `stride`, `b` `(inner, cols)` and `c` `(n, cols)`: each sum is one chain of
/// fused multiply-adds in rising order.
pub(super) fn add_product(
    a: &[f32],
    stride: usize,
    inner: usize,
    b: &[f32],
    c: &mut [f32],
    cols: usize,
) {
    for (a, c) in a.chunks(stride).zip(c.chunks_exact_mut(cols)) {
        for (a, b) in a[..inner].iter().zip(b.chunks_exact(cols)) {
            for (c, b) in c.iter_mut().zip(b) {
                *c = a.mul_add(*b, *c);
            }
        }
    }
}

/// Turns the scores of a tile, `(n, DENSE_TILE)`, into weights `e^(score - max)`. Raises the maxima, corrects the sums of
/// weights and the weighted values `(n, cols)` for that, and adds the weights to the sums.
pub(super) fn weigh(
    scores: &mut [f32],
    maxima: &mut [f32],
    sums: &mut [f32],
    values: &mut [f32],
    cols: usize,
) {
    let rows = scores.chunks_exact_mut(DENSE_TILE);
    let states = maxima
        .iter_mut()
        .zip(sums)
        .zip(values.chunks_exact_mut(cols));
    for (scores, ((max, sum), values)) in rows.zip(states) {
        let most = scores.iter().fold(*max, |a, b| a.max(*b));
        let shift = softmax_shift(most);
        if most != *max {
            let factor = (*max - shift).exp();
            *sum *= factor;
            values.iter_mut().for_each(|value| *value *= factor);
            *max = most;
        }
        let mut part = 0.0;
        for score in scores {
            *score = (*score - shift).exp();
            part += *score;
        }
        *sum += part;
    }
}

/// f16 to f32.
pub(super) fn widen(halves: &[u16], floats: &mut [f32]) {
    for (to, half) in floats.iter_mut().zip(halves) {
        *to = half::f16::from_bits(*half).to_f32();
    }
}
