//! Row-wise arithmetic.
//!
//! Each function takes one row, or rows laid end to end where elements do not interact. An element-wise result
//! depends on its own element only; the order of additions in a norm depends on the row's length alone at all levels
//! with vectors. So a row's result never depends on the other rows of the batch, nor on the width of the vectors.

mod gelu;
mod reference;
#[cfg(test)]
mod tests;

pub use gelu::gelu_erf_in_place;

use crate::Isa;
use crate::dispatch::by_isa;

/// `out = x / rms(x) * weight`, one row.
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm(isa: Isa, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len());
    let factor = rms_factor(isa, x, eps);
    product(isa, x, weight, factor, out);
}

/// `x = x / rms(x) * weight`, one row (a head of q or k).
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm_in_place(isa: Isa, x: &mut [f32], weight: &[f32], eps: f32) {
    assert_eq!(x.len(), weight.len());
    let factor = rms_factor(isa, x, eps);
    product_in_place(isa, x, weight, factor);
}

/// `x = x / sqrt(sum(x^2) + eps) * factor`, one row (a head of q or k).
pub fn l2_norm_in_place(isa: Isa, x: &mut [f32], eps: f32, factor: f32) {
    let norm = (sum_of_squares(isa, x) + eps).sqrt();
    scale(isa, x, factor / norm);
}

/// `1 / sqrt(mean(x^2) + eps)`.
fn rms_factor(isa: Isa, x: &[f32], eps: f32) -> f32 {
    let mean = sum_of_squares(isa, x) / x.len() as f32;
    1.0 / (mean + eps).sqrt()
}

by_isa! {
    reference::softcap, crate::arch::rowwise::softcap;
    /// `x = cap * tanh(x / cap)`.
    pub fn softcap(x: &mut [f32], cap: f32)
}
by_isa! {
    reference::scale, crate::arch::rowwise::scale;
    /// `x *= factor`.
    pub fn scale(x: &mut [f32], factor: f32)
}
by_isa! {
    reference::exp_shifted, crate::arch::rowwise::exp_shifted;
    /// `x = e^(x - shift)`.
    pub fn exp_shifted(x: &mut [f32], shift: f32)
}
by_isa! {
    reference::add_product, crate::arch::rowwise::add_product;
    /// `x += y * factor`, the product rounded before it is added.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_scaled(x: &mut [f32], y: &[f32], factor: f32); equal_lengths: x y
}
by_isa! { reference::sum_of_squares, crate::arch::rowwise::sum_of_squares; fn sum_of_squares(x: &[f32]) -> f32 }
by_isa! {
    reference::product, crate::arch::rowwise::product;
    fn product(x: &[f32], weight: &[f32], factor: f32, out: &mut [f32])
}
by_isa! {
    reference::product_in_place, crate::arch::rowwise::product_in_place;
    fn product_in_place(x: &mut [f32], weight: &[f32], factor: f32)
}
by_isa! {
    reference::silu_in_place, crate::arch::rowwise::silu_in_place;
    /// `x = silu(x)`.
    pub fn silu_in_place(x: &mut [f32])
}
by_isa! {
    reference::quick_gelu_in_place, crate::arch::rowwise::quick_gelu_in_place;
    /// `x = x * sigmoid(1.702 x)`.
    pub fn quick_gelu_in_place(x: &mut [f32])
}
by_isa! {
    reference::add_products, crate::arch::rowwise::add_products;
    /// `x += a * b`, element by element, rounded once where the instruction set does.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_mul(x: &mut [f32], a: &[f32], b: &[f32]); equal_lengths: x a b
}
by_isa! {
    reference::sigmoid, crate::arch::rowwise::sigmoid;
    /// `x *= sigmoid(gate)`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn sigmoid_mul(x: &mut [f32], gate: &[f32]); equal_lengths: x gate
}
by_isa! {
    reference::add, crate::arch::rowwise::add;
    /// `x += y`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_assign(x: &mut [f32], y: &[f32]); equal_lengths: x y
}
by_isa! {
    reference::silu, crate::arch::rowwise::silu;
    /// `gate = silu(gate) * up`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn silu_mul(gate: &mut [f32], up: &[f32]); equal_lengths: gate up
}
by_isa! {
    reference::squared_relu, crate::arch::rowwise::squared_relu;
    /// `gate = max(gate, 0)^2 * up`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn squared_relu_mul(gate: &mut [f32], up: &[f32]); equal_lengths: gate up
}
by_isa! {
    reference::clamped_swiglu, crate::arch::rowwise::clamped_swiglu;
    /// `gate = x * sigmoid(1.702 x) * (u + 1)`, where `x` is `gate`, at most 7, and `u` is `up` within -7 and 7: the
    /// activation of gpt-oss.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn clamped_swiglu_mul(gate: &mut [f32], up: &[f32]); equal_lengths: gate up
}
by_isa! {
    reference::gelu, crate::arch::rowwise::gelu;
    /// `gate = gelu_tanh(gate) * up`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn gelu_mul(gate: &mut [f32], up: &[f32]); equal_lengths: gate up
}

/// Replaces each `group` consecutive elements of `x` by their orthonormal Walsh–Hadamard transform, which is its own inverse and
/// keeps dot products. A large element is spread over its group.
///
/// The order of additions is that of the butterflies, with rising distance, on every level.
///
/// # Panics
/// If `group` is no power of two, or `x` has no whole groups.
pub fn walsh_hadamard(x: &mut [f32], group: usize) {
    assert!(
        group.is_power_of_two() && x.len().is_multiple_of(group),
        "{} elements in groups of {group}",
        x.len()
    );
    let factor = 1.0 / (group as f32).sqrt();
    for part in x.chunks_exact_mut(group) {
        let mut distance = 1;
        while distance < group {
            for pair in part.chunks_exact_mut(2 * distance) {
                let (low, high) = pair.split_at_mut(distance);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            distance *= 2;
        }
        part.iter_mut().for_each(|x| *x *= factor);
    }
}

#[cfg(test)]
mod hadamard_tests {
    use super::*;

    fn noise(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * 1.7 + 0.3).sin()).collect()
    }

    #[test]
    fn transform_is_the_matrix_of_signs() {
        for group in [1usize, 2, 8, 64, 256] {
            let x = noise(3 * group);
            let mut found = x.clone();
            walsh_hadamard(&mut found, group);
            for (found, x) in found.chunks(group).zip(x.chunks(group)) {
                for (row, found) in found.iter().enumerate() {
                    let sign = |col: usize| 1.0 - 2.0 * f64::from((row & col).count_ones() % 2);
                    let sum: f64 = (0..group).map(|col| sign(col) * f64::from(x[col])).sum();
                    let want = sum / (group as f64).sqrt();
                    assert!((f64::from(*found) - want).abs() < 1e-5, "{group}, {row}");
                }
            }
        }
    }

    #[test]
    fn transform_is_its_own_inverse_and_keeps_dot_products() {
        let (a, b) = (noise(128), noise(256).split_off(128));
        let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let (mut turned_a, mut turned_b) = (a.clone(), b.clone());
        walsh_hadamard(&mut turned_a, 64);
        walsh_hadamard(&mut turned_b, 64);
        assert!((dot(&a, &b) - dot(&turned_a, &turned_b)).abs() < 1e-3);
        walsh_hadamard(&mut turned_a, 64);
        assert!(
            a.iter()
                .zip(&turned_a)
                .all(|(a, back)| (a - back).abs() < 1e-5)
        );
    }

    #[test]
    fn outlier_is_spread() {
        let mut x = vec![0.0; 64];
        x[5] = 8.0;
        walsh_hadamard(&mut x, 64);
        assert!(x.iter().all(|x| x.abs() == 1.0), "{x:?}");
    }
}
