//! Sizes of the AMX tiles of activations and weights.

use crate::Format;
use crate::memory::LINE;
use crate::quant::QuantFormat;

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
