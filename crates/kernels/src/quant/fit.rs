//! Fitting a block to weights by rounding.

use super::block::Block;
use super::scheme::{Scales, Scheme};
use super::search;
use crate::Format;
use half::f16;

/// Groups of a block with a scale of their own, at most.
const SUBS_MAX: usize = 16;

/// How the scales of 16 or 32 weights are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Levels spread evenly from the lowest weight to the highest.
    Spread,
    /// The best of many (see [`search`]).
    Search,
}

/// The block that comes near to `weights` (as many as the format's block has).
pub(super) fn block(fit: Fit, format: Format, weights: &[f32]) -> Block {
    let scheme = Scheme::of(format).expect("a quantized format");
    let mut block = Block::default();
    match scheme.scales {
        Scales::Plain => block.d = f16::from_f32(step(&scheme, weights)),
        Scales::PlainMin => {
            let (low, high) = extent(weights);
            block.d = f16::from_f32((high - low) / f32::from(scheme.code_max()));
            block.m = f16::from_f32(low);
        }
        Scales::Super16 => signed_scales(fit, format, &scheme, weights, &mut block),
        Scales::SuperMin16 => scales_and_shifts(fit, &scheme, weights, 15.0, &mut block),
        Scales::SuperMin32 => scales_and_shifts(fit, &scheme, weights, 63.0, &mut block),
    }
    codes(&scheme, weights, &mut block);
    block
}

/// The step between levels of a format without shift: the weight farthest from zero gets the
/// level farthest from zero, which is the lowest (8 bits: both ends, as ggml never writes -128).
fn step(scheme: &Scheme, weights: &[f32]) -> f32 {
    let farthest = weights
        .iter()
        .fold(0.0f32, |a, &w| if w.abs() > a.abs() { w } else { a });
    if scheme.low == 8 {
        farthest.abs() / 127.0
    } else {
        -farthest / scheme.zero() as f32
    }
}

/// Lowest and highest of the weights and zero.
fn extent(weights: &[f32]) -> (f32, f32) {
    weights
        .iter()
        .fold((0.0, 0.0), |(low, high), &w| (w.min(low), w.max(high)))
}

fn signed_scales(fit: Fit, format: Format, scheme: &Scheme, weights: &[f32], block: &mut Block) {
    let most = if format == Format::Q3_K { 31.0 } else { 127.0 };
    let steps = weights
        .chunks_exact(scheme.sub_weights())
        .map(|sub| match fit {
            Fit::Spread => step(scheme, sub),
            Fit::Search => search::step(scheme.zero() as f32, step(scheme, sub), sub),
        });
    let mut found = [0.0; SUBS_MAX];
    let mut largest = 0.0f32;
    for (found, step) in found.iter_mut().zip(steps) {
        *found = step;
        largest = largest.max(step.abs());
    }
    block.d = f16::from_f32(largest / most);
    for (s, step) in block.s.iter_mut().zip(found) {
        *s = ratio(step, block.d).clamp(-most, most) as i8;
    }
}

fn scales_and_shifts(fit: Fit, scheme: &Scheme, weights: &[f32], most: f32, block: &mut Block) {
    let code_max = f32::from(scheme.code_max());
    let parts = weights
        .chunks_exact(scheme.sub_weights())
        .map(|sub| match (fit, extent(sub)) {
            (Fit::Spread, (low, high)) => ((high - low) / code_max, -low),
            (Fit::Search, extent) => search::scale_and_shift(code_max, extent, sub),
        });
    let mut found = [(0.0, 0.0); SUBS_MAX];
    let mut largest = (0.0f32, 0.0f32);
    for (found, part) in found.iter_mut().zip(parts) {
        *found = part;
        largest = (largest.0.max(part.0), largest.1.max(part.1));
    }
    block.d = f16::from_f32(largest.0 / most);
    block.m = f16::from_f32(largest.1 / most);
    let subs = weights.len() / scheme.sub_weights();
    for (sub, (scale, shift)) in found.into_iter().take(subs).enumerate() {
        block.s[sub] = ratio(scale, block.d).clamp(0.0, most) as i8;
        block.t[sub] = ratio(shift, block.m).clamp(0.0, most) as u8;
    }
}

/// The level nearest to each weight, given the scales as they will be read back.
fn codes(scheme: &Scheme, weights: &[f32], block: &mut Block) {
    for (e, &weight) in weights.iter().enumerate() {
        let (scale, shift) = block.affine(scheme.scales, e / scheme.sub_weights());
        let level = if scale == 0.0 {
            0.0
        } else {
            (weight - shift.unwrap_or(0.0)) / scale
        };
        let code = level.round() + scheme.zero() as f32;
        block.codes[e] = code.clamp(0.0, f32::from(scheme.code_max())) as u8;
    }
}

fn ratio(value: f32, unit: f16) -> f32 {
    if unit == f16::ZERO {
        0.0
    } else {
        (value / unit.to_f32()).round()
    }
}
