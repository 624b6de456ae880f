//! Bounds of metadata: wide enough for every published model of these families, and narrow enough that
//! products of two never overflow.

use std::ops::RangeInclusive;

/// Kernels read activations in groups of this many columns.
pub(crate) const COLUMN_GROUP: usize = 32;
/// Layers; llama.cpp allows 512.
pub const LAYERS: usize = 512;
/// Width of the residual stream.
pub const DIM: usize = 1 << 17;
/// Query heads.
pub const HEADS: usize = 1024;
/// Elements of one head.
pub const HEAD_DIM: usize = 1024;
/// Width of the feed-forward part.
pub const HIDDEN: usize = 1 << 20;
/// Experts of a layer; llama.cpp allows 1024.
pub const EXPERTS: usize = 1024;
/// The largest number in `pooling_type`.
pub(crate) const POOLING: usize = 255;
/// Taps of a convolution over time.
pub const TAPS: usize = 64;
/// Ids.
pub const VOCAB: usize = 1 << 22;
/// Positions of one sequence.
pub const CONTEXT: usize = 1 << 24;
/// Epsilon of the norms: positive, since a row of zeros would give NaN.
pub(crate) const EPS: RangeInclusive<f32> = f32::MIN_POSITIVE..=1.0;
/// Base of the rope's frequencies; the logarithm of the base is a divisor.
pub(crate) const THETA: RangeInclusive<f32> = 1.001..=1e12;
/// Factor by which the context was stretched; 0 for none.
pub(super) const STRETCH: RangeInclusive<f32> = 0.0..=1e6;
/// The smallest stretch other than 0: YaRN divides by `1 + 0.1 ln(stretch)`.
pub(super) const STRETCH_LEAST: f32 = 0.01;
/// Factors of sine and cosine.
pub(super) const FACTOR: RangeInclusive<f32> = 1e-3..=1e3;
/// Soft caps; 0 for none.
pub(super) const CAP: RangeInclusive<f32> = 0.0..=1e6;
/// Factors of embeddings, updates, scores and logits; 0 for the family's own.
pub(super) const MULTIPLIER: RangeInclusive<f32> = 0.0..=1e6;
/// The smallest divisor of logits.
pub(super) const DIVISOR: RangeInclusive<f32> = 1e-6..=1e6;
/// YaRN's bounds in turns over the original context.
pub(super) const TURNS: RangeInclusive<f32> = 1e-3..=1e6;
/// Growth of attention scores with the logarithm of the position; 0 for none.
pub(super) const TEMPERATURE: RangeInclusive<f32> = 0.0..=100.0;
