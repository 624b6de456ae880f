//! Int8 quantization of 256 columns (one K-block) of a row of activations, for AMX tiles.

use super::activation_block::{MAX_ABS_MAX, MAX_ABS_MIN, round_ties_even};
use super::tile_sizes::BLOCKS_PER_K_BLOCK;
use crate::memory::{LINE, Pod};
use crate::packing::BLOCK;

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
