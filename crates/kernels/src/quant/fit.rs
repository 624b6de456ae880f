//! Fitting a block to weights by rounding.

use super::block::QuantBlock;
use super::format::{QuantFormat, ScaleKind};
use super::scale_search;
use crate::Format;
use half::f16;

/// Most sub-blocks of a block.
const SUB_BLOCKS_MAX: usize = 16;

/// Choice of the scale of a sub-block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScaleFit {
    /// Levels spread evenly from the smallest weight to the largest.
    MinMax,
    /// The scale with the smallest weighted error of several trials (see [`scale_search`]).
    Search,
}

/// The block that approximates `weights`, as many as the format's block has.
pub(super) fn fit_block(fit: ScaleFit, format: Format, weights: &[f32]) -> QuantBlock {
    let quant = QuantFormat::of(format).expect("a quantized format");
    let mut block = QuantBlock::default();
    match quant.scale_kind {
        ScaleKind::Plain => block.d = f16::from_f32(fit_step(&quant, weights)),
        ScaleKind::Power => block.scales[0] = fit_power(weights) as i8,
        ScaleKind::PlainMin => {
            let (low, high) = weight_extent(weights);
            block.d = f16::from_f32((high - low) / f32::from(quant.quant_max()));
            block.m = f16::from_f32(low);
        }
        ScaleKind::Super16 | ScaleKind::Super32 => {
            signed_scales(fit, format, &quant, weights, &mut block);
        }
        ScaleKind::SuperMin16 => scales_and_shifts(fit, &quant, weights, 15.0, &mut block),
        ScaleKind::SuperMin32 => scales_and_shifts(fit, &quant, weights, 63.0, &mut block),
    }
    assign_quants(&quant, weights, &mut block);
    block
}

/// The step between levels of a format without shift: the weight with the largest magnitude gets the level with
/// the largest magnitude, which is the lowest (8 bits: both ends, as ggml never writes -128).
fn fit_step(quant: &QuantFormat, weights: &[f32]) -> f32 {
    let farthest = weights
        .iter()
        .fold(0.0f32, |a, &w| if w.abs() > a.abs() { w } else { a });
    if quant.low == 8 {
        farthest.abs() / 127.0
    } else if quant.levels.is_some() {
        farthest / quant.level(0) as f32
    } else {
        -farthest / quant.zero() as f32
    }
}

/// The byte of the scale with which the largest magnitude is between 4 and 8 in FP4, of which 6 is the largest: as ggml.
fn fit_power(weights: &[f32]) -> u8 {
    let largest = weights.iter().fold(0.0f32, |a, w| a.max(w.abs()));
    let exponent = largest.to_bits() >> (f32::MANTISSA_DIGITS - 1);
    exponent.saturating_sub(2) as u8
}

/// Minimum and maximum of the weights and zero.
fn weight_extent(weights: &[f32]) -> (f32, f32) {
    weights
        .iter()
        .fold((0.0, 0.0), |(low, high), &w| (w.min(low), w.max(high)))
}

fn signed_scales(
    fit: ScaleFit,
    format: Format,
    quant: &QuantFormat,
    weights: &[f32],
    block: &mut QuantBlock,
) {
    let most = match format {
        Format::Q3_K | Format::IQ4_XS => 31.0,
        _ => 127.0,
    };
    let steps = weights
        .chunks_exact(quant.sub_block_weights())
        .map(|sub| match fit {
            ScaleFit::MinMax => fit_step(quant, sub),
            // The search assumes levels that are evenly spread.
            ScaleFit::Search if quant.levels.is_some() => fit_step(quant, sub),
            ScaleFit::Search => {
                scale_search::fit_step(quant.zero() as f32, fit_step(quant, sub), sub)
            }
        });
    let mut found = [0.0; SUB_BLOCKS_MAX];
    let mut largest = 0.0f32;
    for (found, step) in found.iter_mut().zip(steps) {
        *found = step;
        largest = largest.max(step.abs());
    }
    block.d = f16::from_f32(largest / most);
    for (s, step) in block.scales.iter_mut().zip(found) {
        *s = rounded_ratio(step, block.d).clamp(-most, most) as i8;
    }
}

fn scales_and_shifts(
    fit: ScaleFit,
    quant: &QuantFormat,
    weights: &[f32],
    most: f32,
    block: &mut QuantBlock,
) {
    let quant_max = f32::from(quant.quant_max());
    let parts = weights.chunks_exact(quant.sub_block_weights()).map(|sub| {
        match (fit, weight_extent(sub)) {
            (ScaleFit::MinMax, (low, high)) => ((high - low) / quant_max, -low),
            (ScaleFit::Search, extent) => scale_search::scale_and_shift(quant_max, extent, sub),
        }
    });
    let mut found = [(0.0, 0.0); SUB_BLOCKS_MAX];
    let mut largest = (0.0f32, 0.0f32);
    for (found, part) in found.iter_mut().zip(parts) {
        *found = part;
        largest = (largest.0.max(part.0), largest.1.max(part.1));
    }
    block.d = f16::from_f32(largest.0 / most);
    block.m = f16::from_f32(largest.1 / most);
    let subs = weights.len() / quant.sub_block_weights();
    for (sub, (scale, shift)) in found.into_iter().take(subs).enumerate() {
        block.scales[sub] = rounded_ratio(scale, block.d).clamp(0.0, most) as i8;
        block.mins[sub] = rounded_ratio(shift, block.m).clamp(0.0, most) as u8;
    }
}

/// Assigns each weight the nearest level, given the scales as they will be decoded.
fn assign_quants(quant: &QuantFormat, weights: &[f32], block: &mut QuantBlock) {
    for (e, &weight) in weights.iter().enumerate() {
        let (scale, shift) = block.scale_and_shift(quant, e / quant.sub_block_weights());
        let level = if scale == 0.0 {
            0.0
        } else {
            (weight - shift.unwrap_or(0.0)) / scale
        };
        if quant.levels.is_some() {
            block.quants[e] = nearest_level(quant, level);
            continue;
        }
        let quant_value = level.round() + quant.zero() as f32;
        block.quants[e] = quant_value.clamp(0.0, f32::from(quant.quant_max())) as u8;
    }
}

/// The quant whose level is nearest; the first of two that are as near.
fn nearest_level(quant: &QuantFormat, level: f32) -> u8 {
    let distance = |quant_value: &u8| (quant.level(*quant_value) as f32 - level).abs();
    let quants = 0..=quant.quant_max();
    quants
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .unwrap_or_default()
}

fn rounded_ratio(value: f32, unit: f16) -> f32 {
    if unit == f16::ZERO {
        0.0
    } else {
        (value / unit.to_f32()).round()
    }
}
