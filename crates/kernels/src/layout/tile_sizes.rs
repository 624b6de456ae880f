//! Sizes of the tiles that activations and weights are cut into.

use crate::Format;
use crate::memory::LINE;
use crate::quant::QuantFormat;

/// Rows from which this is faster than the other kernels.
pub(crate) const AMX_ROWS_MIN: usize = 16;
/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = TILE_ROWS * LINE;
/// Bits of a code up to which int8 holds what 256 of them tell.
const INT8_BITS_MAX: usize = 6;
/// Blocks of 32 columns that are made ready at a time.
pub(crate) const BLOCKS_PER_K_BLOCK: usize = 8;

impl QuantFormat {
    /// Whether its weights become tiles of int8.
    pub(crate) const fn fits_int8(&self) -> bool {
        self.low + self.high <= INT8_BITS_MAX
    }
}

/// Whether weights of a format become tiles of int8.
pub(crate) fn fits_int8(format: Format) -> bool {
    QuantFormat::of(format).is_some_and(|quant| quant.fits_int8())
}
