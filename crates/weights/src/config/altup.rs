//! Sizes of Gemma 3n that its files name, but that are the same in all of them.
//!
//! Source: llama.cpp, `src/llama-hparams.h` and `src/models/models.h`, which has them as constants.

/// States of the stream.
pub const STATES: usize = 4;
/// The state that a layer computes with.
pub const ACTIVE: usize = 0;
/// Inner width of the low-rank path beside attention.
pub const LAUREL_RANK: usize = 64;
/// Layers from the first on whose gate keeps its largest entries only.
const SPARSE_LAYERS: usize = 10;
/// Standard deviations above the mean from which on an entry of a gate is kept: a twentieth of a normal distribution.
const SPARSE_DEVIATIONS: f32 = 1.644_853_6;

/// The cutoff of the gate in a layer, in standard deviations above its mean.
pub fn cutoff(layer: usize) -> Option<f32> {
    (layer < SPARSE_LAYERS).then_some(SPARSE_DEVIATIONS)
}
