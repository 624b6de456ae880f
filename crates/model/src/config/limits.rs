//! The bounds that metadata must keep. Generous against every published model of these families,
//! small enough that products of two never overflow.

use std::ops::RangeInclusive;

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
/// Ids.
pub const VOCAB: usize = 1 << 22;
/// Positions of one sequence.
pub const CONTEXT: usize = 1 << 24;
/// Epsilon of the norms: greater than zero, or a row of zeros gives NaN.
pub(super) const EPS: RangeInclusive<f32> = f32::MIN_POSITIVE..=1.0;
/// Base of the rope's frequencies; its logarithm divides.
pub(super) const THETA: RangeInclusive<f32> = 1.001..=1e12;
/// How far a context was stretched; 0 means not at all.
pub(super) const STRETCH: RangeInclusive<f32> = 0.0..=1e6;
/// The least stretch that is not 0: yarn divides by `1 + 0.1 ln(stretch)`.
pub(super) const STRETCH_LEAST: f32 = 0.01;
/// Factors of sine and cosine.
pub(super) const FACTOR: RangeInclusive<f32> = 1e-3..=1e3;
/// Soft caps; 0 means none.
pub(super) const CAP: RangeInclusive<f32> = 0.0..=1e6;
