//! Rows of activations in AMX tiles: int8 quantization of 256 columns (one K-block), rounding to bf16, and the sizes of tiles.

use super::activation_block::{ActivationBlock, MAX_ABS_MAX, MAX_ABS_MIN, round_ties_even};
use crate::Format;
use crate::memory::{LINE, Pod};
use crate::packing::BLOCK;
use crate::quant::QuantFormat;

/// Columns of a K-block, which share a scale.
pub(crate) const K_BLOCK_COLS: usize = BLOCKS_PER_K_BLOCK * BLOCK;
/// Blocks of 32 columns in a tile.
pub(crate) const TILE_BLOCKS: usize = LINE / BLOCK;

/// 64 columns of a row: one line of an int8 tile.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Int8Line(pub(crate) [i8; LINE]);

#[expect(unsafe_code, reason = "a promise about bytes")]
// SAFETY: an array of bytes that fills one cache line.
unsafe impl Pod for Int8Line {}

/// One K-block of a row.
pub(crate) struct Int8KBlock {
    /// The value of one quantization step; NaN where a column is not finite.
    pub(crate) scale: f32,
    /// In `-127..=127`.
    pub(crate) quants: [i8; K_BLOCK_COLS],
}

impl Int8KBlock {
    /// Quantizes to the nearest quants, ties to even, with `scale = max |x| / 127`.
    ///
    /// Scalar code that the compiler vectorizes.
    #[inline(always)]
    pub(crate) fn quantize(x: &[f32; K_BLOCK_COLS]) -> Self {
        let mut quants = [0; K_BLOCK_COLS];
        // Magnitudes order as their bits do, and NaN and infinity order last.
        let bits = x
            .iter()
            .fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
        let most = f32::from_bits(bits);
        let scale = if most.is_nan() || most > MAX_ABS_MAX {
            f32::NAN
        } else if most < MAX_ABS_MIN {
            0.0
        } else {
            let inverse = 127.0 / most;
            for (quant, x) in quants.iter_mut().zip(x) {
                *quant = round_ties_even(x * inverse) as i8;
            }
            most / 127.0
        };
        Self { scale, quants }
    }
}

/// Quantizes up to 256 columns of a row; missing columns are zero.
#[inline(always)]
pub(crate) fn quantize_k_block(x: &[f32]) -> Int8KBlock {
    match x.as_array() {
        Some(x) => Int8KBlock::quantize(x),
        None => {
            let mut part = [0.0; K_BLOCK_COLS];
            part[..x.len()].copy_from_slice(x);
            Int8KBlock::quantize(&part)
        }
    }
}

/// 32 columns of a row as bf16, one cache line.
pub(crate) type Bf16Line = [u16; BLOCK];

/// Reinterprets a line of bf16 as the bytes of a block, which share one buffer.
pub(crate) fn as_activation_block(halves: Bf16Line) -> ActivationBlock {
    #[expect(unsafe_code, reason = "plain bytes")]
    // SAFETY: both types are 64 bytes without padding, and any bytes are valid.
    unsafe {
        std::mem::transmute::<Bf16Line, ActivationBlock>(halves)
    }
}

/// Rounds part of a row to bf16, to nearest, ties to even, and passes each block to `put`. Missing columns are
/// zero.
///
/// Scalar code that the compiler vectorizes.
#[inline(always)]
pub(crate) fn round_to_bf16(x: &[f32], blocks: usize, mut put: impl FnMut(usize, Bf16Line)) {
    let (whole, rest) = x.as_chunks::<BLOCK>();
    for i in 0..blocks {
        let mut part = [0.0; BLOCK];
        let x = match whole.get(i) {
            Some(x) => x,
            None => {
                if i == whole.len() {
                    part[..rest.len()].copy_from_slice(rest);
                }
                &part
            }
        };
        put(i, x.map(nearest));
    }
}

/// The bits of the nearest bf16, ties to even.
#[inline(always)]
fn nearest(x: f32) -> u16 {
    const NAN: u16 = 0x7fc0;
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = (bits.wrapping_add(0x7fff + even) >> 16) as u16;
    if x.is_nan() { NAN } else { rounded }
}

/// Rows of activations from which the AMX kernels are faster than the vector kernels.
pub(crate) const AMX_ROWS_MIN: usize = 16;
/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = TILE_ROWS * LINE;
/// Widest quants that int8 with one scale per 256 columns represents without notable loss.
const INT8_BITS_MAX: usize = 6;
/// Blocks of 32 columns in a K-block, the depth of weights that is dequantized at a time.
pub(crate) const BLOCKS_PER_K_BLOCK: usize = 8;

impl QuantFormat {
    /// Whether the weights are requantized to int8 tiles; otherwise they become bf16 tiles.
    pub(crate) const fn fits_int8(&self) -> bool {
        self.factor_bits() <= INT8_BITS_MAX
    }
}

/// Whether weights of a tensor format are requantized to int8 tiles.
pub(crate) fn fits_int8(format: Format) -> bool {
    QuantFormat::of(format).is_some_and(|quant| quant.fits_int8())
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn halves_are_the_nearest_bf16() {
        let mut bits = 1u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(bits);
            let half = bf16::from_bits(nearest(x));
            let same = half == bf16::from_f32(x) || (x.is_nan() && half.is_nan());
            assert!(same, "{x}: {half}");
        }
    }
}
