//! Sizes of the tiles that activations and weights are cut into.

use crate::Format;
use crate::memory::LINE;
use crate::quant::Scheme;

/// Rows from which this is faster than the other kernels.
pub(crate) const ROWS_MIN: usize = 16;
/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = TILE_ROWS * LINE;
/// Bits of a code up to which int8 holds what 256 of them tell.
const CODE_BITS_MAX: usize = 6;
/// Blocks of 32 columns that are made ready at a time.
pub(crate) const CHUNK_BLOCKS: usize = 8;

impl Scheme {
    /// Whether its weights become tiles of int8.
    pub(crate) const fn takes_codes(&self) -> bool {
        self.low + self.high <= CODE_BITS_MAX
    }
}

/// Whether weights of a format become tiles of int8.
pub(crate) fn takes_codes(format: Format) -> bool {
    Scheme::of(format).is_some_and(|scheme| scheme.takes_codes())
}
