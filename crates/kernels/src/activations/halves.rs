//! Many rows as tiles of bf16.

use super::{ActBlock, Activations, STAGGER};
use crate::matmul::tiled::TILE_ROWS;
use crate::packing::BLOCK;
use crate::pool::Disjoint;
use crate::{Isa, Pool};
use std::ops::Range;

/// 32 columns of a row, in one line.
pub(crate) type Halves = [u16; BLOCK];

impl Activations {
    /// Fills `blocks` with tiles and, if they are wanted, `floats` with the rows. What rows and columns lack is zero.
    pub(super) fn load_tiles(&mut self, isa: Isa, pool: &mut Pool, x: &[f32]) {
        let (rows, cols, stride, blocks) = (self.rows, self.cols, self.stride, self.tile_blocks());
        let float_rows = if self.forms.floats { rows } else { 0 };
        let (lines, floats) = (
            Disjoint::new(&mut self.blocks),
            Disjoint::new(&mut self.floats),
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
                round_on(isa, x, some, |i, halves| {
                    let tile = row / TILE_ROWS * blocks + first + i;
                    let at = tile * TILE_ROWS + row % TILE_ROWS;
                    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint lines")]
                    // SAFETY: the workers' ranges of lines are disjoint.
                    let line = unsafe { lines.part(at..at + 1) };
                    line[0] = line_of(halves);
                });
                if row < float_rows {
                    let at = (row * stride + first) * BLOCK;
                    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint parts")]
                    // SAFETY: as above.
                    let floats = unsafe { floats.part(at..at + some * BLOCK) };
                    let (copied, padding) = floats.split_at_mut(x.len());
                    copied.copy_from_slice(x);
                    padding.fill(0.0);
                }
            }
        };
        pool.ranges(rows.next_multiple_of(TILE_ROWS) * blocks, 1, work);
    }

    /// Blocks of 32 columns in a row of tiles.
    pub(crate) fn tile_blocks(&self) -> usize {
        self.stride - STAGGER
    }

    /// Bytes from a tile to that of the next sixteen rows.
    pub(crate) fn tile_row_bytes(&self) -> usize {
        self.tile_blocks() * TILE_ROWS * size_of::<ActBlock>()
    }

    /// The tile of a block of 32 columns and sixteen rows.
    ///
    /// # Panics
    /// If rows are not tiled, or there is no such tile.
    #[inline(always)]
    pub(crate) fn tile(&self, tile: usize, block: usize) -> *const u8 {
        assert!(
            self.tiled
                && self.forms.halves
                && block < self.tile_blocks()
                && tile * TILE_ROWS < self.rows
        );
        let line = (tile * self.tile_blocks() + block) * TILE_ROWS;
        self.blocks[line..].as_ptr().cast()
    }
}

/// Halves where a block would be.
fn line_of(halves: Halves) -> ActBlock {
    #[expect(unsafe_code, reason = "plain bytes")]
    // SAFETY: both are 64 bytes without gaps, of which any are valid.
    unsafe {
        std::mem::transmute::<Halves, ActBlock>(halves)
    }
}

#[cfg(target_arch = "x86_64")]
use crate::arch::prepare::round_on;

#[cfg(not(target_arch = "x86_64"))]
fn round_on(_: Isa, x: &[f32], blocks: usize, put: impl FnMut(usize, Halves)) {
    round(x, blocks, put);
}

/// Rounds part of a row to bf16, to nearest, ties to even, and hands out block after block. What `x`
/// lacks is zero.
///
/// Plain code that the compiler turns into vectors.
#[inline(always)]
pub(crate) fn round(x: &[f32], blocks: usize, mut put: impl FnMut(usize, Halves)) {
    let (whole, rest) = x.as_chunks::<BLOCK>();
    for i in 0..blocks {
        let mut part = [0.0; BLOCK];
        let x = match whole.get(i) {
            Some(x) => x,
            None => {
                if i == whole.len() {
                    part[..rest.len()].copy_from_slice(rest);
                }
                &part
            }
        };
        put(i, x.map(nearest));
    }
}

/// The nearest bf16's bits.
#[inline(always)]
fn nearest(x: f32) -> u16 {
    const NAN: u16 = 0x7fc0;
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = (bits.wrapping_add(0x7fff + even) >> 16) as u16;
    if x.is_nan() { NAN } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn halves_are_the_nearest_bf16() {
        let mut bits = 1u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(bits);
            let half = bf16::from_bits(nearest(x));
            let same = half == bf16::from_f32(x) || (x.is_nan() && half.is_nan());
            assert!(same, "{x}: {half}");
        }
    }

    #[test]
    fn tiles_hold_rows_in_order_and_zeros_around() {
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
                let tile = activations.tile(row / 16, col / 32).cast::<u16>();
                #[expect(unsafe_code, reason = "a tile is handed out as a pointer")]
                // SAFETY: a tile has 16 lines of 32 halves.
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
