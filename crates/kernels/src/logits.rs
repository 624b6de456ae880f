//! Rows of logits: what sampling computes of every entry of a vocabulary.
//!
//! The loops are plain Rust over [`LANES`](crate::packing::LANES) lanes, compiled for each level. Additions have a
//! fixed order and no product is fused into a sum, so all levels compute the same bits.

mod loops;
#[cfg(test)]
mod tests;

use crate::Isa;
use crate::dispatch::compiled_by_isa;

/// Entries for each of [`block_maxima`].
pub const MAXIMA_BLOCK: usize = 64;

/// Entries for each of [`block_masses`].
pub const MASSES_BLOCK: usize = 256;

/// The id of the largest entry, the lowest where equal; `None` if no entry is above minus infinity. NaN is ignored.
pub fn most_likely(isa: Isa, logits: &[f32]) -> Option<u32> {
    let most = max(isa, logits);
    let id = (most > f32::NEG_INFINITY).then(|| first_equal(isa, logits, most));
    id.flatten().map(|id| id as u32)
}

/// The largest entry of each [`MAXIMA_BLOCK`] entries. NaN is ignored.
///
/// # Panics
/// If `maxima` has not one entry for each block, of which the last may be shorter.
pub fn block_maxima(logits: &[f32], maxima: &mut [f32]) {
    assert_eq!(maxima.len(), logits.len().div_ceil(MAXIMA_BLOCK));
    // Blocks are short: wider vectors take as long.
    for (most, block) in maxima.iter_mut().zip(logits.chunks(MAXIMA_BLOCK)) {
        *most = loops::max(block);
    }
}

/// Weights in proportion to the probabilities, `e^((logit - max) / temperature)`: 1 for an entry that equals `max`.
///
/// # Panics
/// If the lengths differ.
pub fn softmax_weights(isa: Isa, logits: &[f32], max: f32, temperature: f32, weights: &mut [f32]) {
    assert_eq!(weights.len(), logits.len());
    write_weights(isa, logits, max, temperature, weights);
}

/// The sum of each [`MASSES_BLOCK`] weights.
///
/// # Panics
/// If `masses` has not one entry for each block, of which the last may be shorter.
pub fn block_masses(isa: Isa, weights: &[f32], masses: &mut [f64]) {
    assert_eq!(masses.len(), weights.len().div_ceil(MASSES_BLOCK));
    write_masses(isa, weights, masses);
}

compiled_by_isa! {
    loops::is_sound;
    /// Whether a row is free of NaN and plus infinity, and some entry is above minus infinity.
    pub fn is_sound(logits: &[f32]) -> bool
}
compiled_by_isa! {
    loops::all_finite;
    /// Whether a row is free of NaN and of both infinities.
    pub fn all_finite(logits: &[f32]) -> bool
}
compiled_by_isa! {
    loops::max;
    /// The largest entry, minus infinity if there is none. NaN is ignored.
    pub fn max(logits: &[f32]) -> f32
}
compiled_by_isa! {
    loops::exp_sum;
    /// The sum of `e^(logit - max)` for entries of at most `max`.
    pub fn exp_sum(logits: &[f32], max: f32) -> f64
}
compiled_by_isa! { loops::first_equal; fn first_equal(logits: &[f32], value: f32) -> Option<usize> }
compiled_by_isa! {
    loops::softmax_weights;
    fn write_weights(logits: &[f32], max: f32, temperature: f32, weights: &mut [f32])
}
compiled_by_isa! { loops::block_masses; fn write_masses(weights: &[f32], masses: &mut [f64]) }
