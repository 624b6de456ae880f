//! 256 columns of a row of activations as int8, for tiles.

use super::activation_block::{LARGEST, SMALLEST, nearest};
use super::tile_sizes::CHUNK_BLOCKS;
use crate::memory::{LINE, Plain};
use crate::packing::BLOCK;

/// Columns that share a scale.
pub(crate) const CHUNK: usize = CHUNK_BLOCKS * BLOCK;
/// Blocks of 32 columns in a tile.
pub(crate) const TILE_BLOCKS: usize = LINE / BLOCK;

/// 64 columns of a row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct CodeLine(pub(crate) [i8; LINE]);

#[expect(unsafe_code, reason = "a promise about bytes")]
// SAFETY: an array of bytes, one line long.
unsafe impl Plain for CodeLine {}

/// 256 columns of a row.
pub(crate) struct CodeChunk {
    /// What a code stands for; NaN where a column is not finite.
    pub(crate) scale: f32,
    /// In `-127..=127`.
    pub(crate) codes: [i8; CHUNK],
}

impl CodeChunk {
    /// The nearest codes, ties to even, with `scale = max |x| / 127`.
    ///
    /// Plain code that the compiler turns into vectors.
    #[inline(always)]
    pub(crate) fn of(x: &[f32; CHUNK]) -> Self {
        let mut codes = [0; CHUNK];
        // Magnitudes compare as their bits do, and NaN and infinity come out on top.
        let bits = x
            .iter()
            .fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
        let most = f32::from_bits(bits);
        let scale = if most.is_nan() || most > LARGEST {
            f32::NAN
        } else if most < SMALLEST {
            0.0
        } else {
            let inverse = 127.0 / most;
            for (code, x) in codes.iter_mut().zip(x) {
                *code = nearest(x * inverse) as i8;
            }
            most / 127.0
        };
        Self { scale, codes }
    }
}

/// Codes for up to 256 columns of a row; what `x` lacks is zero.
#[inline(always)]
pub(crate) fn code(x: &[f32]) -> CodeChunk {
    match x.as_array() {
        Some(x) => CodeChunk::of(x),
        None => {
            let mut part = [0.0; CHUNK];
            part[..x.len()].copy_from_slice(x);
            CodeChunk::of(&part)
        }
    }
}
