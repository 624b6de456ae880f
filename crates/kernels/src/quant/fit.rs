//! Fitting a block to weights by rounding.

use super::{Block, Scales, Scheme};
use crate::Format;
use half::f16;

/// The block that comes near to `weights` (as many as the format's block has).
pub(super) fn block(format: Format, weights: &[f32]) -> Block {
    let scheme = Scheme::of(format).expect("a quantised format");
    let mut block = Block::default();
    match scheme.scales {
        Scales::Plain => block.d = f16::from_f32(step(&scheme, weights)),
        Scales::PlainMin => {
            let (low, high) = extent(weights);
            block.d = f16::from_f32((high - low) / f32::from(scheme.code_max()));
            block.m = f16::from_f32(low);
        }
        Scales::Super16 => signed_scales(format, &scheme, weights, &mut block),
        Scales::SuperMin16 => scales_and_shifts(&scheme, weights, 15.0, &mut block),
        Scales::SuperMin32 => scales_and_shifts(&scheme, weights, 63.0, &mut block),
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

fn signed_scales(format: Format, scheme: &Scheme, weights: &[f32], block: &mut Block) {
    let most = if format == Format::Q3_K { 31.0 } else { 127.0 };
    let subs = weights.chunks_exact(scheme.sub_weights());
    let largest = subs
        .clone()
        .map(|sub| step(scheme, sub).abs())
        .fold(0.0, f32::max);
    block.d = f16::from_f32(largest / most);
    for (s, sub) in block.s.iter_mut().zip(subs) {
        *s = ratio(step(scheme, sub), block.d).clamp(-most, most) as i8;
    }
}

fn scales_and_shifts(scheme: &Scheme, weights: &[f32], most: f32, block: &mut Block) {
    let subs = weights.chunks_exact(scheme.sub_weights());
    let parts = subs.map(|sub| {
        let (low, high) = extent(sub);
        ((high - low) / f32::from(scheme.code_max()), -low)
    });
    let largest = parts
        .clone()
        .fold((0.0f32, 0.0f32), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    block.d = f16::from_f32(largest.0 / most);
    block.m = f16::from_f32(largest.1 / most);
    for (sub, (scale, shift)) in parts.enumerate() {
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
