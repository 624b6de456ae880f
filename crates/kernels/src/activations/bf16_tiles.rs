//! Loading rows as bf16 tiles.

use super::dispatch::round_to_bf16_on;
use crate::layout::bf16_tile::as_activation_block;
use crate::layout::tile_sizes::TILE_ROWS;
use crate::packing::BLOCK;
use crate::pool::DisjointSlice;
use crate::{Activations, Isa, Pool};
use std::ops::Range;

impl Activations {
    /// Fills `blocks` with bf16 tiles and, if needed, `floats` with the rows. Missing rows and columns are
    /// zero.
    pub(super) fn load_bf16_tiles(&mut self, isa: Isa, pool: &mut Pool, x: &[f32], rows: usize) {
        let (cols, stride, blocks) = (self.cols, self.stride, self.tile_blocks());
        let float_rows = if self.tile_forms.f32 { rows } else { 0 };
        let (lines, floats) = (
            DisjointSlice::new(&mut self.blocks),
            DisjointSlice::new(&mut self.floats),
        );
        let work = |mut range: Range<usize>| {
            while !range.is_empty() {
                let (row, first) = (range.start / blocks, range.start % blocks);
                let some = range.len().min(blocks - first);
                range.start += some;
                let columns = (first * BLOCK).min(cols)..((first + some) * BLOCK).min(cols);
                let x = if row < rows {
                    &x[row * cols..][columns]
                } else {
                    &[]
                };
                round_to_bf16_on(isa, x, some, |i, halves| {
                    let tile = row / TILE_ROWS * blocks + first + i;
                    let at = tile * TILE_ROWS + row % TILE_ROWS;
                    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint lines")]
                    // SAFETY: the workers' ranges of lines are disjoint.
                    let line = unsafe { lines.part(at..at + 1) };
                    line[0] = as_activation_block(halves);
                });
                if row < float_rows {
                    let at = (row * stride + first) * BLOCK;
                    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint parts")]
                    // SAFETY: the workers' ranges of blocks are disjoint.
                    let floats = unsafe { floats.part(at..at + some * BLOCK) };
                    let (copied, padding) = floats.split_at_mut(x.len());
                    copied.copy_from_slice(x);
                    padding.fill(0.0);
                }
            }
        };
        pool.ranges(rows.next_multiple_of(TILE_ROWS) * blocks, 1, work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn tiles_hold_rows_in_order_with_zero_padding() {
        let Some(isa) = Isa::amx() else { return };
        let (rows, cols) = (37, 75);
        let x: Vec<f32> = (0..rows * cols).map(|i| (i % 251) as f32).collect();
        let mut activations = Activations::new(rows, cols);
        let pool = &mut Pool::new(3);
        activations.load(isa, pool, &vec![7.0; rows * cols], rows, cols);
        activations.load(isa, pool, &x, rows, cols);
        assert_eq!(activations.tile_blocks(), 4);
        for row in 0..48 {
            for col in 0..128 {
                let tile = activations
                    .bf16_tiles(row / 16..row / 16 + 1, col / 32..col / 32 + 1)
                    .cast::<u16>();
                #[expect(unsafe_code, reason = "a tile is handed out as a pointer")]
                // SAFETY: a tile has 16 lines of 32 bf16 values.
                let half = unsafe { *tile.add(row % 16 * 32 + col % 32) };
                let expected = if row < rows && col < cols {
                    x[row * cols + col]
                } else {
                    0.0
                };
                assert_eq!(bf16::from_bits(half).to_f32(), expected, "({row}, {col})");
            }
        }
    }
}
