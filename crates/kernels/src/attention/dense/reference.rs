//! Reference implementations of the vector kernels.

use crate::layout::softmax_shift;

/// `c += a * b` for `a` `(n, inner)` in rows of `stride`, `b` `(inner, cols)` and `c` `(n, cols)`, which counts as zero if it is
/// fresh: each sum is one chain of fused multiply-adds in rising order.
pub(super) fn add_product(
    a: &[f32],
    stride: usize,
    inner: usize,
    b: &[f32],
    (c, cols): (&mut [f32], usize),
    is_fresh: bool,
) {
    if is_fresh {
        c.fill(0.0);
    }
    for (a, c) in a.chunks(stride).zip(c.chunks_exact_mut(cols)) {
        for (a, b) in a[..inner].iter().zip(b.chunks_exact(cols)) {
            for (c, b) in c.iter_mut().zip(b) {
                *c = a.mul_add(*b, *c);
            }
        }
    }
}

/// Turns scores, `(keys, cols)` with a column for each query, into weights `2^(score - max)`. Raises the maxima, corrects
/// the sums of weights and the weighted values `(elements, cols)` for that, and adds the weights to the sums.
pub(super) fn weigh(scores: &mut [f32], maxima: &mut [f32], sums: &mut [f32], values: &mut [f32]) {
    let cols = maxima.len();
    for (col, (max, sum)) in maxima.iter_mut().zip(sums).enumerate() {
        let column = scores.chunks_exact(cols).map(|line| line[col]);
        let most = column.fold(*max, f32::max);
        let shift = softmax_shift(most);
        let factor = (*max - shift).exp2();
        let mut part = 0.0;
        for line in scores.chunks_exact_mut(cols) {
            line[col] = (line[col] - shift).exp2();
            part += line[col];
        }
        *sum = sum.mul_add(factor, part);
        if most != *max {
            for line in values.chunks_exact_mut(cols) {
                line[col] *= factor;
            }
        }
        *max = most;
    }
}

/// f16 to f32.
pub(super) fn widen(halves: &[u16], floats: &mut [f32]) {
    for (to, half) in floats.iter_mut().zip(halves) {
        *to = half::f16::from_bits(*half).to_f32();
    }
}
