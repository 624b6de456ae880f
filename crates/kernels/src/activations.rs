//! Loading rows of activations into the forms that matmul kernels read: int8 blocks, int8 tiles and bf16 tiles.
#![allow(unsafe_code)] // Entering a fast path; the Isa is the proof.

#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use crate::arch::activations::{
    quantize_blocks_avx2, quantize_blocks_avx512, quantize_k_block_avx512, round_to_bf16_avx512,
};
use crate::isa::Level;
use crate::layout::activation_block::{ActivationBlock, quantize_blocks};
use crate::layout::activations::{PADDING_BLOCKS, row_stride};
use crate::layout::tiles::{
    AMX_ROWS_MIN, BLOCKS_PER_K_BLOCK, Bf16Line, Int8KBlock, Int8Line, K_BLOCK_COLS, TILE_BLOCKS,
    TILE_ROWS, as_activation_block, quantize_k_block, round_to_bf16,
};
use crate::memory::LINE;
use crate::packing::BLOCK;
use crate::pool::DisjointSlice;
use crate::{Activations, Isa, Pool};
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

impl Activations {
    /// Fills `blocks` with bf16 tiles and, if needed, `floats` with the rows. Missing rows and columns are
    /// zero.
    fn load_bf16_tiles(&mut self, isa: Isa, pool: &mut Pool, x: &[f32], rows: usize) {
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

impl Activations {
    /// Fills the int8 tiles and their scales. Missing rows and columns are zero.
    fn load_int8_tiles(&mut self, isa: Isa, pool: &mut Pool, x: &[f32], rows: usize) {
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

/// [`quantize_blocks`] on the vectors of a level.
fn quantize_blocks_on(isa: Isa, x: &[f32], blocks: &mut [ActivationBlock], floats: &mut [f32]) {
    match isa.level() {
        Level::Scalar => quantize_blocks(x, blocks, floats),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx2 | Level::AvxVnni => unsafe { quantize_blocks_avx2(x, blocks, floats) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { quantize_blocks_avx512(x, blocks, floats) },
        // All code for AArch64 is compiled with NEON.
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::NeonDotprod | Level::NeonI8mm => quantize_blocks(x, blocks, floats),
    }
}

/// [`round_to_bf16`] on the vectors of a level.
fn round_to_bf16_on(isa: Isa, x: &[f32], blocks: usize, put: impl FnMut(usize, Bf16Line)) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { round_to_bf16_avx512(x, blocks, put) },
        _ => round_to_bf16(x, blocks, put),
    }
}

/// [`quantize_k_block`] on the vectors of a level.
fn quantize_k_block_on(isa: Isa, x: &[f32]) -> Int8KBlock {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { quantize_k_block_avx512(x) },
        _ => quantize_k_block(x),
    }
}

#[cfg(test)]
mod bf16_tiles_tests {
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

#[cfg(test)]
mod int8_tiles_tests {
    use super::*;
    use crate::layout::tiles::quantize_k_block;

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
