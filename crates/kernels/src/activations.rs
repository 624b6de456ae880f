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
        let stride = row_stride(cols);
        assert!(
            rows * stride * BLOCK <= self.floats.len(),
            "no room for ({rows}, {cols}) activations"
        );
        (self.rows, self.cols, self.stride) = (rows, cols, stride);
        self.tiled = isa.has_tiles() && rows >= AMX_ROWS_MIN && cols > 0;
        if self.tiled {
            if self.tile_forms.int8 {
                self.load_int8_tiles(isa, pool, x);
            }
            if self.tile_forms.bf16 || self.tile_forms.f32 {
                self.load_bf16_tiles(isa, pool, x);
            }
            return;
        }
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
                quantize_blocks_on(isa, &x[row * cols..][columns], blocks, floats);
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
