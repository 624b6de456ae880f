//! Norms of rows: RMS norm and layer norm. Matrices with a bias.

use kernels::{Activations, Isa, Pool, add_assign, matmul, rms_norm, rms_norm_in_place};
use weights::parameters::{BlockInput, Linear, Norm};

/// Elements that are summed side by side, so that the loop vectorizes.
const SUMS: usize = 16;

/// Normalizes one row into `out`.
pub(crate) fn apply(norm: &Norm, isa: Isa, eps: f32, x: &[f32], out: &mut [f32]) {
    if norm.centered {
        out.copy_from_slice(x);
        apply_in_place(norm, isa, eps, out);
        return;
    }
    rms_norm(isa, x, &norm.weight, eps, out);
    if let Some(bias) = &norm.bias {
        add_assign(isa, out, bias);
    }
}

/// Normalizes one row.
pub(crate) fn apply_in_place(norm: &Norm, isa: Isa, eps: f32, row: &mut [f32]) {
    if norm.centered {
        layer_norm(isa, row, &norm.weight, norm.bias.as_deref(), eps);
        return;
    }
    rms_norm_in_place(isa, row, &norm.weight, eps);
    if let Some(bias) = &norm.bias {
        add_assign(isa, row, bias);
    }
}

/// Normalizes each part of `len` elements; the weights repeat if there are fewer than elements.
///
/// # Panics
/// If the weights are no multiple of `len`, or there are biases.
pub(crate) fn apply_to_parts(norm: &Norm, isa: Isa, eps: f32, row: &mut [f32], len: usize) {
    assert!(norm.weight.len().is_multiple_of(len) && norm.bias.is_none());
    let weights = norm.weight.chunks_exact(len).cycle();
    for (part, weight) in row.chunks_exact_mut(len).zip(weights) {
        if norm.centered {
            layer_norm(isa, part, weight, None, eps);
        } else {
            rms_norm_in_place(isa, part, weight, eps);
        }
    }
}

/// Writes one row of a block's input to `input`, which holds the input of the previous attention.
pub(crate) fn read_input(
    block: &BlockInput,
    isa: Isa,
    eps: f32,
    stream: &[f32],
    input: &mut [f32],
) {
    match block {
        BlockInput::Normed(norm) => apply(norm, isa, eps, stream, input),
        BlockInput::Stream => input.copy_from_slice(stream),
        BlockInput::AsAttention => {}
    }
}

/// Layer norm of one row: the row less its mean, divided by its deviation, scaled and shifted.
pub(crate) fn layer_norm(
    isa: Isa,
    row: &mut [f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    eps: f32,
) {
    let mean = sum(row) / row.len() as f32;
    row.iter_mut().for_each(|entry| *entry -= mean);
    rms_norm_in_place(isa, row, weight, eps);
    if let Some(bias) = bias {
        add_assign(isa, row, bias);
    }
}

/// The sum of a row.
fn sum(row: &[f32]) -> f32 {
    sum_of(row, |entry| entry)
}

/// The sum of a function of a row's entries, in an order that depends on the length only.
pub(crate) fn sum_of(row: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0; SUMS];
    for part in row.chunks(SUMS) {
        for (sum, entry) in sums.iter_mut().zip(part) {
            *sum += of(*entry);
        }
    }
    sums.iter().sum()
}

/// The sum of the products of two rows' entries, in an order that depends on the length only.
pub(crate) fn sum_of_products(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; SUMS];
    for (a, b) in a.chunks(SUMS).zip(b.chunks(SUMS)) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

/// Subtracts the mean and `deviations` standard deviations from each entry, and replaces what is negative then by 0.
pub(crate) fn keep_largest(row: &mut [f32], deviations: f32) {
    let mean = sum(row) / row.len() as f32;
    let squares = sum_of(row, |entry| (entry - mean) * (entry - mean));
    let cutoff = mean + (squares / (row.len() - 1) as f32).sqrt() * deviations;
    row.iter_mut()
        .for_each(|entry| *entry = (*entry - cutoff).max(0.0));
}

/// Matrix multiplication and bias.
pub(crate) fn project(
    isa: Isa,
    pool: &mut Pool,
    linear: &Linear,
    x: &Activations,
    out: &mut [f32],
) {
    matmul(pool, &linear.weight, x, out);
    if let Some(bias) = &linear.bias {
        pool.rows(out, bias.len(), |_, row| add_assign(isa, row, bias));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_entries_are_kept_above_the_cutoff() {
        let row: Vec<f32> = (0..70)
            .map(|i| ((i * 13 % 17) as f32).sin() + 0.3)
            .collect();
        let wide: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        let mean = wide.iter().sum::<f64>() / 70.0;
        let variance = wide.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 69.0;
        let mut kept = row;
        keep_largest(&mut kept, 0.8);
        for (kept, x) in kept.iter().zip(wide) {
            let wanted = (x - mean - 0.8 * variance.sqrt()).max(0.0);
            assert!((f64::from(*kept) - wanted).abs() < 1e-5, "{kept} {wanted}");
        }
        assert!(kept.contains(&0.0) && kept.iter().any(|x| *x > 0.0));
    }

    #[test]
    fn norms_equal_their_definitions() {
        let x: Vec<f32> = (0..48).map(|i| ((i * 7 % 11) as f32).sin()).collect();
        let weight: Vec<f32> = (0..48).map(|i| 0.5 + i as f32 / 48.0).collect();
        let bias: Vec<f32> = (0..48).map(|i| i as f32 / 100.0).collect();
        let mean = x.iter().sum::<f32>() / 48.0;
        for (centered, shift) in [(false, 0.0), (true, mean)] {
            let square = x.iter().map(|x| (x - shift).powi(2)).sum::<f32>() / 48.0;
            let factor = 1.0 / (square + 1e-5).sqrt();
            let norm = Norm {
                weight: weight.clone(),
                bias: Some(bias.clone()),
                centered,
            };
            let mut out = vec![0.0; 48];
            apply(&norm, Isa::detect(), 1e-5, &x, &mut out);
            for (i, found) in out.iter().enumerate() {
                let wanted = (x[i] - shift) * factor * weight[i] + bias[i];
                assert!(
                    (found - wanted).abs() < 1e-5,
                    "{centered}: {found}, {wanted}"
                );
            }
        }
    }

    #[test]
    fn parts_repeat_weights_or_have_their_own() {
        for (weights, own) in [(vec![1.0, 2.0], false), (vec![1.0, 2.0, 3.0, 4.0], true)] {
            let norm = Norm {
                weight: weights,
                bias: None,
                centered: false,
            };
            let mut row = [3.0, 3.0, 3.0, 3.0];
            apply_to_parts(&norm, Isa::detect(), 1e-9, &mut row, 2);
            let wanted = if own {
                [1.0, 2.0, 3.0, 4.0]
            } else {
                [1.0, 2.0, 1.0, 2.0]
            };
            for (found, wanted) in row.iter().zip(wanted) {
                assert!((found - wanted).abs() < 1e-5, "{row:?}");
            }
        }
    }
}
