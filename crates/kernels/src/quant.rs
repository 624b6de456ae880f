//! ggml's block formats: reading and writing the bytes of a GGUF tensor.
//!
//! Each quantized weight is `scale * (quant - zero) + shift`: the quant is an unsigned integer of a few bits,
//! `zero` is a constant of the format, and 16 or 32 consecutive weights share scale and shift ([`format`]).
//! Formats differ in the position of the bits and in how scales are stored ([`block`]). In the IQ formats a quant stands for a level of a
//! table; those below 4 bits store quants as patterns ([`grids`]). Levels are stored as bytes with 128 added, as kernels
//! multiply the quants of Q8_0.
//! Source: `ggml-common.h` and `ggml-quants.c` of the ggml project.

mod block;
mod fit;
mod format;
mod grids;
#[cfg(test)]
mod requantize_tests;
mod scale_search;
#[cfg(test)]
mod tests;

pub use block::QuantBlock;
pub(crate) use block::with_constant_format;
pub use format::{QuantFormat, ScaleKind, power_scale};

use crate::{Format, Pool};
use fit::ScaleFit;
use half::{bf16, f16};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A weight that is infinite or NaN, by index into the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonFiniteWeight(pub usize);

/// Converts a matrix of `cols` columns, stored in `raw` in the format `from`, to the format `to`, with the
/// scales of [`quantize_with_search`](quantize_with_search). Row `r` of the result is row `row_of(r)` of
/// `raw`. Where the formats are equal, bytes are only moved.
///
/// # Errors
/// The first weight that is not finite, where weights are converted.
///
/// # Panics
/// If `raw` is no whole number of rows, a row no whole number of blocks of either format, or `row_of` returns a
/// row out of range.
pub fn requantize_rows(
    pool: &mut Pool,
    (from, raw): (Format, &[u8]),
    cols: usize,
    to: Format,
    row_of: impl Fn(usize) -> usize + Sync,
) -> Result<Vec<u8>, NonFiniteWeight> {
    let (row_from, row_to) = (byte_count(from, cols), byte_count(to, cols));
    assert!(
        row_from > 0 && raw.len().is_multiple_of(row_from),
        "{} bytes are no whole rows of {row_from}",
        raw.len()
    );
    let mut out = vec![0; raw.len() / row_from * row_to];
    let first_bad = AtomicUsize::new(usize::MAX);
    pool.rows(&mut out, row_to, |row, out| {
        let source = row_of(row);
        let raw = &raw[source * row_from..(source + 1) * row_from];
        if from == to {
            return out.copy_from_slice(raw);
        }
        let mut weights = vec![0.0; cols];
        dequantize(from, raw, &mut weights);
        match weights.iter().position(|weight| !weight.is_finite()) {
            None => write_weights(ScaleFit::Search, to, &weights, out),
            Some(bad) => _ = first_bad.fetch_min(source * cols + bad, Ordering::Relaxed),
        }
    });
    match first_bad.into_inner() {
        usize::MAX => Ok(out),
        bad => Err(NonFiniteWeight(bad)),
    }
}

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
fn write_weights(fit: ScaleFit, format: Format, weights: &[f32], raw: &mut [u8]) {
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
fn byte_count(format: Format, weights: usize) -> usize {
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
