//! Reading and writing rows of weights in any tensor format.

use super::block::QuantBlock;
use super::fit::{self, ScaleFit};
use super::format::QuantFormat;
use crate::Format;

use half::{bf16, f16};

/// Writes the `out.len()` weights stored in `raw`, with the bits of ggml's `dequantize_row_*`.
///
/// # Panics
/// If `out.len()` is no whole number of blocks, or `raw` has another length than these blocks.
pub fn dequantize(format: Format, raw: &[u8], out: &mut [f32]) {
    assert_eq!(
        raw.len(),
        byte_count(format, out.len()),
        "bytes of {} {format:?} weights",
        out.len()
    );
    let Some(quant) = QuantFormat::of(format) else {
        return read_floats(format, raw, out);
    };
    let mut block = QuantBlock::default();
    let bytes = raw.chunks_exact(format.block_bytes());
    for (bytes, out) in bytes.zip(out.chunks_exact_mut(quant.weights)) {
        block.decode(format, bytes);
        block.dequantize(&quant, out);
    }
}

/// The bytes of `weights` in `format`, each block rounded to the nearest of evenly spread levels. For test and
/// benchmark files; [`quantize_with_search`] searches for better scales.
///
/// # Panics
/// If `weights.len()` is no whole number of blocks, or the format is not [written](Format::is_written).
pub fn quantize(format: Format, weights: &[f32]) -> Vec<u8> {
    let mut raw = vec![0; byte_count(format, weights.len())];
    write_weights(ScaleFit::MinMax, format, weights, &mut raw);
    raw
}

/// The bytes of `weights` in `format`, with the scales of 256-weight blocks searched for the smallest weighted
/// error. For models that are used for inference.
///
/// # Panics
/// If `weights.len()` is no whole number of blocks, or the format is not [written](Format::is_written).
pub fn quantize_with_search(format: Format, weights: &[f32]) -> Vec<u8> {
    let mut raw = vec![0; byte_count(format, weights.len())];
    write_weights(ScaleFit::Search, format, weights, &mut raw);
    raw
}

/// Writes `weights` as `format` into `raw`, which is zeroed and exactly as long as needed.
pub(super) fn write_weights(fit: ScaleFit, format: Format, weights: &[f32], raw: &mut [u8]) {
    match format {
        Format::F32 => write_values(raw, weights, f32::to_le_bytes),
        Format::F16 => write_values(raw, weights, |w| f16::from_f32(w).to_le_bytes()),
        Format::BF16 => write_values(raw, weights, |w| bf16::from_f32(w).to_le_bytes()),
        _ => {
            let bytes = raw.chunks_exact_mut(format.block_bytes());
            for (bytes, weights) in bytes.zip(weights.chunks_exact(format.block_weights())) {
                fit::fit_block(fit, format, weights).encode(format, bytes);
            }
        }
    }
}

/// Bytes of `weights` weights in `format`.
pub(super) fn byte_count(format: Format, weights: usize) -> usize {
    let per_block = format.block_weights();
    assert!(
        weights.is_multiple_of(per_block),
        "{weights} weights are no whole number of blocks"
    );
    weights / per_block * format.block_bytes()
}

/// Reads weights that are stored as floats, widened to f32.
fn read_floats(format: Format, raw: &[u8], out: &mut [f32]) {
    let pair = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    match format {
        Format::F32 => read_values(raw, out, |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        Format::F16 => read_values(raw, out, |b| f16::from_bits(pair(b)).to_f32()),
        _ => read_values(raw, out, |b| bf16::from_bits(pair(b)).to_f32()),
    }
}

fn read_values(raw: &[u8], out: &mut [f32], read: impl Fn(&[u8]) -> f32) {
    let width = raw.len() / out.len().max(1);
    for (bytes, out) in raw.chunks_exact(width.max(1)).zip(out) {
        *out = read(bytes);
    }
}

fn write_values<const N: usize>(raw: &mut [u8], weights: &[f32], write: impl Fn(f32) -> [u8; N]) {
    for (bytes, &weight) in raw.chunks_exact_mut(N).zip(weights) {
        bytes.copy_from_slice(&write(weight));
    }
}
