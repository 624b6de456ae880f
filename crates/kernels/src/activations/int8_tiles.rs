//! Loading rows as int8 tiles.

use super::dispatch::quantize_k_block_on;
use crate::layout::int8_tile::{Int8Line, K_BLOCK_COLS, TILE_BLOCKS};
use crate::layout::tile_sizes::{BLOCKS_PER_K_BLOCK, TILE_ROWS};
use crate::memory::LINE;
use crate::pool::DisjointSlice;
use crate::{Activations, Isa, Pool};
use std::ops::Range;

impl Activations {
    /// Fills the int8 tiles and their scales. Missing rows and columns are zero.
    pub(super) fn load_int8_tiles(&mut self, isa: Isa, pool: &mut Pool, x: &[f32], rows: usize) {
        let (cols, blocks) = (self.cols, self.tile_blocks());
        let (k_blocks, tiles) = (self.k_blocks(), blocks / TILE_BLOCKS);
        let (lines, scales) = (
            DisjointSlice::new(&mut self.int8_lines),
            DisjointSlice::new(&mut self.int8_scales),
        );
        let work = |range: Range<usize>| {
            for at in range {
                let (row, k_block_index) = (at / k_blocks, at % k_blocks);
                let columns = (k_block_index * K_BLOCK_COLS).min(cols)
                    ..((k_block_index + 1) * K_BLOCK_COLS).min(cols);
                let x = if row < rows {
                    &x[row * cols..][columns]
                } else {
                    &[]
                };
                let k_block = quantize_k_block_on(isa, x);
                let (tile, line) = (row / TILE_ROWS, row % TILE_ROWS);
                let first = k_block_index * BLOCKS_PER_K_BLOCK / TILE_BLOCKS;
                let parts = k_block.quants.as_chunks::<LINE>().0.iter();
                for (i, part) in (first..tiles).zip(parts) {
                    let to = (tile * tiles + i) * TILE_ROWS + line;
                    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint lines")]
                    // SAFETY: the workers' ranges of rows and K-blocks are disjoint.
                    let to = unsafe { lines.part(to..to + 1) };
                    to[0] = Int8Line(*part);
                }
                let to = (tile * k_blocks + k_block_index) * TILE_ROWS + line;
                #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint parts")]
                // SAFETY: the workers' ranges of rows and K-blocks are disjoint.
                let to = unsafe { scales.part(to..to + 1) };
                to[0] = k_block.scale;
            }
        };
        pool.ranges(rows.next_multiple_of(TILE_ROWS) * k_blocks, 1, work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::int8_tile::quantize_k_block;

    #[test]
    fn tiles_hold_rows_in_order_with_zero_padding() {
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
                let tile = activations
                    .int8_tiles(row / 16..row / 16 + 1, col / 64 * 2..col / 64 * 2 + 2)
                    .cast::<i8>();
                #[expect(unsafe_code, reason = "a tile is handed out as a pointer")]
                // SAFETY: a tile has 16 lines of 64 quants.
                let code = unsafe { *tile.add(row % 16 * 64 + col % 64) };
                let scale = activations.int8_tile_scales(row / 16, col / 256 * 8)[row % 16];
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
    fn non_finite_k_block_is_marked_and_tiny_k_block_is_zero() {
        for odd in [f32::NAN, f32::NEG_INFINITY, f32::MAX] {
            assert!(quantize_k_block(&[1.0, odd]).scale.is_nan());
        }
        for tiny in [0.0, 1e-45, 1e-36] {
            let k_block = quantize_k_block(&[tiny]);
            assert_eq!((k_block.scale, k_block.quants), (0.0, [0; K_BLOCK_COLS]));
        }
        assert_eq!(quantize_k_block(&[1e-34, -1e-34]).quants[..2], [127, -127]);
    }
}
