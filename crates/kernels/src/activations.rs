//! Loading rows of activations into the forms that matmul kernels read.

mod bf16_tiles;
mod dispatch;
mod int8_tiles;
#[cfg(test)]
mod tests;

use crate::layout::activations::{PADDING_BLOCKS, row_stride};
use crate::layout::tile_sizes::AMX_ROWS_MIN;
use crate::packing::BLOCK;
use crate::pool::DisjointSlice;
use crate::{Activations, Isa, Pool};
use dispatch::quantize_blocks_on;
use std::ops::Range;

/// Blocks below which the caller works alone: about the cost of one pool barrier.
const ALONE_BLOCKS: usize = 128;

impl Activations {
    /// Quantizes `x`, shape `(rows, cols)`, any number of columns.
    ///
    /// # Panics
    /// If `x` has another shape or the buffers are too small.
    pub fn load(&mut self, isa: Isa, pool: &mut Pool, x: &[f32], rows: usize, cols: usize) {
        assert_eq!(x.len(), rows * cols, "({rows}, {cols}) activations");
        self.begin_load(rows, cols);
        let tiled = isa.has_tiles() && rows >= AMX_ROWS_MIN && cols > 0;
        if !tiled {
            self.load_rows(isa, pool, x, rows, |row| row);
        } else {
            if self.tile_forms.int8 {
                self.load_int8_tiles(isa, pool, x, rows);
            }
            if self.tile_forms.bf16 || self.tile_forms.f32 {
                self.load_bf16_tiles(isa, pool, x, rows);
            }
        }
        (self.rows, self.tiled) = (rows, tiled);
    }

    /// Quantizes these rows of `x`, shape `(_, cols)`, in this order; never as AMX tiles.
    ///
    /// # Panics
    /// If `x` has no such row or the buffers are too small.
    pub fn load_gathered(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        x: &[f32],
        rows: &[u32],
        cols: usize,
    ) {
        self.begin_load(rows.len(), cols);
        self.load_rows(isa, pool, x, rows.len(), |row| rows[row] as usize);
        self.rows = rows.len();
    }

    /// Forgets the rows of the last load. The caller sets `rows` and `tiled` once the buffers are filled, so that a
    /// panic of a worker leaves no row that is only half there.
    fn begin_load(&mut self, rows: usize, cols: usize) {
        let stride = row_stride(cols);
        assert!(
            rows * stride * BLOCK <= self.floats.len(),
            "no room for ({rows}, {cols}) activations"
        );
        (self.rows, self.tiled) = (0, false);
        (self.cols, self.stride) = (cols, stride);
    }

    /// Quantizes row `row_of(row)` of `x` as row `row`.
    fn load_rows(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        x: &[f32],
        rows: usize,
        row_of: impl Fn(usize) -> usize + Sync,
    ) {
        let (cols, stride) = (self.cols, self.stride);
        let row_blocks = stride - PADDING_BLOCKS;
        let blocks = DisjointSlice::new(&mut self.blocks);
        let floats = DisjointSlice::new(&mut self.floats);
        let work = |mut range: Range<usize>| {
            while !range.is_empty() {
                let (row, first) = (range.start / row_blocks, range.start % row_blocks);
                let some = range.len().min(row_blocks - first);
                range.start += some;
                let columns = (first * BLOCK).min(cols)..((first + some) * BLOCK).min(cols);
                let at = row * stride + first;
                #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint blocks")]
                // SAFETY: the workers' ranges of blocks are disjoint, and so are these slices.
                let (blocks, floats) = unsafe {
                    (
                        blocks.part(at..at + some),
                        floats.part(at * BLOCK..(at + some) * BLOCK),
                    )
                };
                quantize_blocks_on(isa, &x[row_of(row) * cols..][columns], blocks, floats);
            }
        };
        let total = rows * row_blocks;
        if total < ALONE_BLOCKS {
            work(0..total);
        } else {
            pool.ranges(total, 1, work);
        }
    }
}
