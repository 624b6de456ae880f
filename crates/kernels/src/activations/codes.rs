//! Many rows as tiles of int8.

use super::{Activations, LARGEST, SMALLEST, nearest};
use crate::matmul::tiled::{CHUNK_BLOCKS, TILE_ROWS};
use crate::memory::{LINE, Plain};
use crate::packing::BLOCK;
use crate::pool::Disjoint;
use crate::{Isa, Pool};
use std::ops::Range;

/// Columns that share a scale.
pub(crate) const CHUNK: usize = CHUNK_BLOCKS * BLOCK;
/// Blocks of 32 columns in a tile.
pub(crate) const TILE_BLOCKS: usize = LINE / BLOCK;

/// 64 columns of a row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct CodeLine([i8; LINE]);

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

impl Activations {
    /// Lines of codes for `rows` rows of `stride` blocks.
    pub(super) const fn code_lines(rows: usize, stride: usize) -> usize {
        rows * stride.div_ceil(TILE_BLOCKS)
    }

    /// Scales of as many codes.
    pub(super) const fn code_scales(rows: usize, stride: usize) -> usize {
        rows * stride.div_ceil(CHUNK_BLOCKS)
    }

    /// Fills `codes` with tiles, and `scales`. What rows and columns lack is zero.
    pub(super) fn load_codes(&mut self, isa: Isa, pool: &mut Pool, x: &[f32]) {
        let (rows, cols, blocks) = (self.rows, self.cols, self.tile_blocks());
        let (chunks, tiles) = (self.code_chunks(), blocks / TILE_BLOCKS);
        let (lines, scales) = (
            Disjoint::new(&mut self.codes),
            Disjoint::new(&mut self.scales),
        );
        let work = |range: Range<usize>| {
            for at in range {
                let (row, chunk) = (at / chunks, at % chunks);
                let columns = (chunk * CHUNK).min(cols)..((chunk + 1) * CHUNK).min(cols);
                let x = if row < rows {
                    &x[row * cols..][columns]
                } else {
                    &[]
                };
                let coded = code_on(isa, x);
                let (tile, line) = (row / TILE_ROWS, row % TILE_ROWS);
                let first = chunk * CHUNK_BLOCKS / TILE_BLOCKS;
                let parts = coded.codes.as_chunks::<LINE>().0.iter();
                for (i, part) in (first..tiles).zip(parts) {
                    let to = (tile * tiles + i) * TILE_ROWS + line;
                    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint lines")]
                    // SAFETY: the workers' ranges of rows and chunks are disjoint.
                    let to = unsafe { lines.part(to..to + 1) };
                    to[0] = CodeLine(*part);
                }
                let to = (tile * chunks + chunk) * TILE_ROWS + line;
                #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint parts")]
                // SAFETY: as above.
                let to = unsafe { scales.part(to..to + 1) };
                to[0] = coded.scale;
            }
        };
        pool.ranges(rows.next_multiple_of(TILE_ROWS) * chunks, 1, work);
    }

    fn code_chunks(&self) -> usize {
        self.tile_blocks().div_ceil(CHUNK_BLOCKS)
    }

    /// Bytes from a tile of codes to that of the next sixteen rows.
    pub(crate) fn code_row_bytes(&self) -> usize {
        self.tile_blocks() / TILE_BLOCKS * TILE_ROWS * LINE
    }

    /// The tile of codes of two blocks of 32 columns and sixteen rows.
    ///
    /// # Panics
    /// If rows are not tiled as codes, or there is no such tile.
    #[inline(always)]
    pub(crate) fn code_tile(&self, tile: usize, block: usize) -> *const u8 {
        let tiles = self.tile_blocks() / TILE_BLOCKS;
        let at = block / TILE_BLOCKS;
        assert!(self.tiled && self.forms.codes && at < tiles && tile * TILE_ROWS < self.rows);
        self.codes[(tile * tiles + at) * TILE_ROWS..]
            .as_ptr()
            .cast()
    }

    /// The scales of sixteen rows in the chunk that begins with this block.
    ///
    /// # Panics
    /// If there is no such chunk.
    #[inline(always)]
    pub(crate) fn code_tile_scales(&self, tile: usize, block: usize) -> &[f32; TILE_ROWS] {
        let at = tile * self.code_chunks() + block / CHUNK_BLOCKS;
        &self.scales.as_chunks().0[at]
    }
}

#[cfg(target_arch = "x86_64")]
use crate::arch::prepare::code_on;

#[cfg(not(target_arch = "x86_64"))]
fn code_on(_: Isa, x: &[f32]) -> CodeChunk {
    code(x)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_hold_rows_in_order_and_zeros_around() {
        let Some(isa) = Isa::amx() else { return };
        let (rows, cols) = (37, 459);
        let x: Vec<f32> = (0..rows * cols).map(|i| (i % 251) as f32 - 99.5).collect();
        let mut activations = Activations::new(rows, cols);
        let pool = &mut Pool::new(3);
        activations.load(isa, pool, &vec![7.0; rows * cols], rows, cols);
        activations.load(isa, pool, &x, rows, cols);
        assert_eq!(activations.tile_blocks(), 16);
        for row in 0..48 {
            for col in 0..512 {
                let tile = activations.code_tile(row / 16, col / 32).cast::<i8>();
                #[expect(unsafe_code, reason = "a tile is handed out as a pointer")]
                // SAFETY: a tile has 16 lines of 64 codes.
                let code = unsafe { *tile.add(row % 16 * 64 + col % 64) };
                let scale = activations.code_tile_scales(row / 16, col / 256 * 8)[row % 16];
                let expected = if row < rows && col < cols {
                    x[row * cols + col]
                } else {
                    0.0
                };
                let off = (f32::from(code) * scale - expected).abs();
                assert!(off <= scale * 0.5001, "({row}, {col}): {code} of {scale}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_marked_and_what_is_tiny_is_zero() {
        for odd in [f32::NAN, f32::NEG_INFINITY, f32::MAX] {
            assert!(code(&[1.0, odd]).scale.is_nan());
        }
        for tiny in [0.0, 1e-45, 1e-36] {
            let coded = code(&[tiny]);
            assert_eq!((coded.scale, coded.codes), (0.0, [0; CHUNK]));
        }
        assert_eq!(code(&[1e-34, -1e-34]).codes[..2], [127, -127]);
    }
}
