//! K-blocks of a few vectors of weights: packed, unpacked and to be prefetched.

use crate::arch::int8_dot::AddProducts;
use crate::arch::packed_block::{PackedBlock, each_row};
use crate::arch::prefetch::prefetch_nearest;
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, PackedFormat};
use crate::quant::QuantFormat;
use std::marker::PhantomData;

/// Blocks of 32 columns in a K-block: whole tiles of any format.
pub(super) const K_BLOCK_BLOCKS: usize = 16;

/// The K-block of a few vectors of weights.
pub(super) struct KBlock {
    /// Tiles of the first panel.
    pub(super) packed: *const u8,
    /// Bytes from panel to panel.
    pub(super) panel_bytes: usize,
    pub(super) unpacked: *mut u8,
    /// Blocks of 32 columns.
    pub(super) blocks: usize,
    /// The first panel's weights that are needed next, and how many bytes are still to be prefetched.
    pub(super) next: *const u8,
    pub(super) next_bytes: usize,
}

impl KBlock {
    /// Prefetches `step` bytes of each panel of `V` vectors, if any are left.
    #[inline(always)]
    pub(super) fn prefetch_next<D: AddProducts, const V: usize>(&mut self, step: usize) {
        if self.next_bytes == 0 {
            return;
        }
        let step = step.next_multiple_of(LINE);
        for panel in 0..V * D::ROWS / LANES {
            let from = self.next.wrapping_add(panel * self.panel_bytes);
            for line in (0..step).step_by(LINE) {
                prefetch_nearest(from.wrapping_add(line));
            }
        }
        self.next = self.next.wrapping_add(step);
        self.next_bytes = self.next_bytes.saturating_sub(step);
    }
}

/// Bytes of an unpacked block of `V` vectors.
pub(super) const fn block_bytes<D: AddProducts, const V: usize>(quant: &QuantFormat) -> usize {
    let scales = if quant.has_shift() { 2 } else { 1 };
    (GROUPS + scales * quant.sub_blocks_per_block()) * V * vector_bytes::<D>()
}

const fn vector_bytes<D: AddProducts>() -> usize {
    4 * D::ROWS
}

/// 32 columns of `V` vectors: with `FIRST` packed, and unpacked on the way; else unpacked.
pub(super) struct BlockSource<D, P, const V: usize, const FIRST: bool> {
    tile: *const u8,
    panel_bytes: usize,
    /// Index within the tile.
    block: usize,
    unpacked: *mut u8,
    level: PhantomData<(D, P)>,
}

impl<D: AddProducts, P: PackedFormat, const V: usize, const FIRST: bool>
    BlockSource<D, P, V, FIRST>
{
    /// Block `index` of a K-block.
    #[inline(always)]
    pub(super) fn new(part: &KBlock, index: usize) -> Self {
        let (quant, bytes) = (P::QUANT, block_bytes::<D, V>(&P::QUANT));
        let tile = index / quant.tile_blocks() * quant.tile_bytes();
        Self {
            tile: part.packed.wrapping_add(tile),
            panel_bytes: part.panel_bytes,
            block: index % quant.tile_blocks(),
            unpacked: part.unpacked.wrapping_add(index * bytes),
            level: PhantomData,
        }
    }

    #[inline(always)]
    fn packed(&self, vector: usize) -> PackedBlock {
        let row = vector * D::ROWS;
        PackedBlock {
            tile: self.tile.wrapping_add(row / LANES * self.panel_bytes),
            block: self.block,
            first: row % LANES,
        }
    }

    /// The quants of four columns.
    ///
    /// # Safety
    /// The processor has the level of `D`, and the K-block has the block.
    #[inline(always)]
    pub(super) unsafe fn quants(&self, group: usize) -> [D::Ints; V] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let at = self.unpacked.add(group * V * vector_bytes::<D>());
            // Overwritten: vectors have no value that serves all levels.
            let mut quants = [D::load(at); V];
            each_row!(v in V => {
                let at = at.add(v * vector_bytes::<D>());
                if FIRST {
                    quants[v] = self.packed(v).load_group::<D, P>(group);
                    D::store_ints(quants[v], at);
                } else {
                    quants[v] = D::load(at);
                }
            });
            quants
        }
    }

    /// Scales and shifts of a sub-block; a shift is meaningless where the format has none.
    ///
    /// # Safety
    /// The processor has the level of `D`, and the K-block has the block.
    #[inline(always)]
    pub(super) unsafe fn scales(&self, sub_block: usize) -> ([D::F; V], [D::F; V]) {
        let has_shift = P::QUANT.has_shift();
        let line = V * vector_bytes::<D>();
        // SAFETY: guaranteed by the caller.
        unsafe {
            let at = self.unpacked.add((GROUPS + sub_block) * line);
            let shifts = at.add(P::QUANT.sub_blocks_per_block() * line);
            let (mut scale, mut shift) = ([D::splat(0.0); V], [D::splat(0.0); V]);
            each_row!(v in V => {
                let offset = v * vector_bytes::<D>();
                if FIRST {
                    (scale[v], shift[v]) = self.packed(v).load_scales::<D, P>(sub_block);
                    D::store(scale[v], at.add(offset).cast());
                    if has_shift {
                        D::store(shift[v], shifts.add(offset).cast());
                    }
                } else {
                    scale[v] = D::load_f32(at.add(offset));
                    if has_shift {
                        shift[v] = D::load_f32(shifts.add(offset));
                    }
                }
            });
            (scale, shift)
        }
    }
}
