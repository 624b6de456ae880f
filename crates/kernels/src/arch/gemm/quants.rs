//! GEMM of quants, written once for AVX-512 and AVX-VNNI.
//!
//! The first rows are multiplied while the K-block is unpacked: unpacking needs other units of the processor than
//! products do, and costs little even where rows are few.

use crate::Activations;
use crate::arch::int8_dot::{AddProducts, Avx512, AvxVnni};
use crate::arch::packed_block::{PackedBlock, each_row, zero_point_shift};
use crate::arch::prefetch::prefetch_nearest;
use crate::layout::activation_block::ActivationBlock;
use crate::layout::gemm::{GemmWorkspace, UNPACKED_BYTES};
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, PackedFormat};
use crate::quant::QuantFormat;
use std::marker::PhantomData;
use std::ops::Range;

/// Multiplies `N` panels of quants with the rows: up to six rows at a time with all panels.
///
/// # Safety
/// The processor has AVX-512 with VNNI.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn gemm_quants_avx512<P: PackedFormat, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    // SAFETY: compiled for the level.
    unsafe { multiply_panels::<Avx512, P, 1, N, 6>(panels, x, rows, workspace) };
}

/// Multiplies `N` panels of quants with the rows: up to three rows at a time with a panel, which is two vectors.
///
/// # Safety
/// The processor has AVX2, FMA, F16C and AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(crate) unsafe fn gemm_quants_avx_vnni<P: PackedFormat, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    // SAFETY: compiled for the level.
    unsafe { multiply_panels::<AvxVnni, P, N, 2, 3>(panels, x, rows, workspace) };
}

/// Multiplies `PARTS` times `V` vectors of weights with the rows, at most `M` rows at a time with `V` vectors.
///
/// # Safety
/// Compiled for the level of `D`.
#[inline(always)]
unsafe fn multiply_panels<
    D: GroupProducts,
    P: PackedFormat,
    const PARTS: usize,
    const V: usize,
    const M: usize,
>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    let quant = P::QUANT;
    let part_bytes = const { K_BLOCK_BLOCKS * block_bytes::<D, V>(&P::QUANT) };
    const { assert!(PARTS * K_BLOCK_BLOCKS * block_bytes::<D, V>(&P::QUANT) <= UNPACKED_BYTES) };
    let part_panels = V * D::ROWS / LANES;
    let panel_bytes = panels.len() / (PARTS * part_panels);
    let tiles = panel_bytes / quant.tile_bytes();
    assert!(
        rows.len() <= workspace.sums.len()
            && x.blocks(rows.start).len() >= tiles * quant.tile_blocks()
    );
    workspace.sums[..rows.len()].fill([0.0; 4 * LANES]);
    let tiles_per_k_block = K_BLOCK_BLOCKS / quant.tile_blocks();
    for first in (0..tiles).step_by(tiles_per_k_block) {
        let count = tiles_per_k_block.min(tiles - first);
        let (at, bytes) = (first * quant.tile_bytes(), count * quant.tile_bytes());
        // The next panels follow these.
        let next = if first + count < tiles {
            at + bytes
        } else {
            panels.len()
        };
        let mut parts: [KBlock; PARTS] = std::array::from_fn(|part| {
            let panel = panels
                .as_ptr()
                .wrapping_add(part * part_panels * panel_bytes);
            let unpacked = workspace.unpacked.as_mut_ptr();
            KBlock {
                packed: panel.wrapping_add(at),
                panel_bytes,
                unpacked: unpacked.wrapping_add(part * part_bytes),
                blocks: count * quant.tile_blocks(),
                next: panel.wrapping_add(next),
                next_bytes: bytes,
            }
        });
        let column = first * quant.tile_blocks();
        // SAFETY: the tiles are within each panel; `UNPACKED_BYTES` holds a K-block; each row has as many
        // blocks as a panel, and the workspace has sums for each row.
        unsafe {
            let sums = workspace.sums.as_mut_ptr().cast();
            multiply_rows::<D, P, PARTS, V, M>(&mut parts, x, rows.clone(), column, sums);
        }
    }
    if zero_point_shift::<D>(&quant) > 0 {
        for sums in &mut workspace.sums[..rows.len()] {
            // SAFETY: a row has sums for two panels, and compiled for the level.
            unsafe {
                let unshift = D::splat(1.0 / (1 << zero_point_shift::<D>(&quant)) as f32);
                for v in 0..PARTS * V {
                    let at = sums.as_mut_ptr().add(v * D::ROWS);
                    D::store(D::mul(D::load_f32(at.cast()), unshift), at);
                }
            }
        }
    }
}

/// Adds the products of the K-blocks and of the blocks of `rows` from `column` on to the accumulators, which are
/// four lines apart. Groups of rows are about equally long, the longest first: a short group at the end would load as many
/// quants for fewer products.
///
/// # Safety
/// As [`multiply_panels`]; the rows have the blocks of the K-block, and `sums` has lines for each row.
#[inline(always)]
unsafe fn multiply_rows<
    D: GroupProducts,
    P: PackedFormat,
    const PARTS: usize,
    const V: usize,
    const M: usize,
>(
    parts: &mut [KBlock; PARTS],
    x: &Activations,
    rows: Range<usize>,
    column: usize,
    sums: *mut f32,
) {
    let mut row = 0;
    while row < rows.len() {
        let left = rows.len() - row;
        let groups = left.div_ceil(M);
        macro_rules! group {
            ($count:literal, $first:literal) => {{
                let at: [*const ActivationBlock; $count] =
                    std::array::from_fn(|m| x.blocks(rows.start + row + m)[column..].as_ptr());
                for (index, part) in parts.iter_mut().enumerate() {
                    let step = part.next_bytes.div_ceil(groups * part.blocks);
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        let sums = sums.add(row * 4 * LANES + index * V * D::ROWS);
                        D::multiply_group::<P, V, $count, $first>(part, step, &at, sums);
                    }
                }
                $count
            }};
        }
        // Other sizes come from few rows, for which this kernel is not called: a row at a time will do.
        row += match (row == 0, left.div_ceil(groups)) {
            (true, 6) if M >= 6 => group!(6, true),
            (true, 5) if M >= 5 => group!(5, true),
            (true, 4) if M >= 4 => group!(4, true),
            (true, 3) if M == 3 => group!(3, true),
            (true, _) => group!(1, true),
            (false, 6) if M >= 6 => group!(6, false),
            (false, 5) if M >= 5 => group!(5, false),
            (false, 4) if M >= 4 => group!(4, false),
            (false, 3) if M == 3 => group!(3, false),
            (false, 2) if M == 3 => group!(2, false),
            (false, _) => group!(1, false),
        };
    }
}

/// A level with the products of a group of rows as a function of its own: inlined into one function, the groups of
/// all sizes took the compiler minutes for each format, and a call costs nothing measurable next to a K-block.
trait GroupProducts: AddProducts {
    /// As [`multiply_group`].
    ///
    /// # Safety
    /// As [`multiply_rows`].
    unsafe fn multiply_group<P: PackedFormat, const V: usize, const M: usize, const FIRST: bool>(
        part: &mut KBlock,
        step: usize,
        rows: &[*const ActivationBlock; M],
        sums: *mut f32,
    );
}

impl GroupProducts for Avx512 {
    #[inline(never)]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn multiply_group<P: PackedFormat, const V: usize, const M: usize, const FIRST: bool>(
        part: &mut KBlock,
        step: usize,
        rows: &[*const ActivationBlock; M],
        sums: *mut f32,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe { multiply_group::<Self, P, V, M, FIRST>(part, step, rows, sums) };
    }
}

impl GroupProducts for AvxVnni {
    #[inline(never)]
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    unsafe fn multiply_group<P: PackedFormat, const V: usize, const M: usize, const FIRST: bool>(
        part: &mut KBlock,
        step: usize,
        rows: &[*const ActivationBlock; M],
        sums: *mut f32,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe { multiply_group::<Self, P, V, M, FIRST>(part, step, rows, sums) };
    }
}

/// Adds the products of a K-block with `M` rows to the accumulators, and prefetches `step` bytes for each block.
/// With `FIRST` the K-block is unpacked, too.
///
/// # Safety
/// As [`multiply_rows`].
#[inline(always)]
unsafe fn multiply_group<
    D: AddProducts,
    P: PackedFormat,
    const V: usize,
    const M: usize,
    const FIRST: bool,
>(
    part: &mut KBlock,
    step: usize,
    rows: &[*const ActivationBlock; M],
    sums: *mut f32,
) {
    let sub_blocks = P::QUANT.sub_blocks_per_block();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut acc = [[D::splat(0.0); V]; M];
        each_row!(m in M => {
            each_row!(v in V => {
                acc[m][v] = D::load_f32(sums.add(m * 4 * LANES + v * D::ROWS).cast());
            });
        });
        for index in 0..part.blocks {
            part.prefetch_next::<D, V>(step);
            let block = BlockSource::<D, P, V, FIRST>::new(part, index);
            let mut x = *rows;
            each_row!(m in M => { x[m] = rows[m].add(index); });
            each_row!(sub_block in sub_blocks => {
                add_sub_block(&block, sub_block, &x, &mut acc);
            });
        }
        each_row!(m in M => {
            each_row!(v in V => { D::store(acc[m][v], sums.add(m * 4 * LANES + v * D::ROWS)); });
        });
    }
}

/// Adds the products of a sub-block with a block of `M` rows to the accumulators.
///
/// # Safety
/// As [`multiply_rows`].
#[inline(always)]
unsafe fn add_sub_block<
    D: AddProducts,
    P: PackedFormat,
    const V: usize,
    const M: usize,
    const FIRST: bool,
>(
    block: &BlockSource<D, P, V, FIRST>,
    sub_block: usize,
    x: &[*const ActivationBlock; M],
    acc: &mut [[D::F; V]; M],
) {
    let quant = P::QUANT;
    let groups = quant.sub_block_weights() / 4;
    // Index 0 is the sum of the block, 1 and 2 are the sums of its halves.
    let sum_index = if quant.sub_blocks_per_block() == 1 {
        0
    } else {
        1 + sub_block
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let bits = quant.factor_bits();
        // Without closures, which the compiler may not inline here.
        let mut dots = [[D::initial_sum(&*x[0], sum_index, quant.zero_log2, bits); V]; M];
        each_row!(m in M => {
            dots[m] = [D::initial_sum(&*x[m], sum_index, quant.zero_log2, bits); V];
        });
        each_row!(i in groups => {
            let group = sub_block * groups + i;
            let w = block.quants(group);
            each_row!(m in M => {
                let x = (&raw const (*x[m]).quants).cast::<i32>().add(group);
                each_row!(v in V => { dots[m][v] = D::add_products(dots[m][v], w[v], *x); });
            });
        });
        let (scale, shift) = block.scales(sub_block);
        each_row!(m in M => {
            let x = &*x[m];
            each_row!(v in V => {
                acc[m][v] = D::mul_add(D::scaled_sum(dots[m][v], x), scale[v], acc[m][v]);
                if quant.has_shift() {
                    let moment = D::splat(x.scaled_sums[sum_index]);
                    acc[m][v] = D::mul_add(moment, shift[v], acc[m][v]);
                }
            });
        });
    }
}

/// Blocks of 32 columns in a K-block: whole tiles of any format.
const K_BLOCK_BLOCKS: usize = 16;

/// The K-block of a few vectors of weights.
struct KBlock {
    /// Tiles of the first panel.
    packed: *const u8,
    /// Bytes from panel to panel.
    panel_bytes: usize,
    unpacked: *mut u8,
    /// Blocks of 32 columns.
    blocks: usize,
    /// The first panel's weights that are needed next, and how many bytes are still to be prefetched.
    next: *const u8,
    next_bytes: usize,
}

impl KBlock {
    /// Prefetches `step` bytes of each panel of `V` vectors, if any are left.
    #[inline(always)]
    fn prefetch_next<D: AddProducts, const V: usize>(&mut self, step: usize) {
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
const fn block_bytes<D: AddProducts, const V: usize>(quant: &QuantFormat) -> usize {
    let scales = if quant.has_shift() { 2 } else { 1 };
    (GROUPS + scales * quant.sub_blocks_per_block()) * V * vector_bytes::<D>()
}

const fn vector_bytes<D: AddProducts>() -> usize {
    4 * D::ROWS
}

/// 32 columns of `V` vectors: with `FIRST` packed, and unpacked on the way; else unpacked.
struct BlockSource<D, P, const V: usize, const FIRST: bool> {
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
    fn new(part: &KBlock, index: usize) -> Self {
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
    unsafe fn quants(&self, group: usize) -> [D::Ints; V] {
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
    unsafe fn scales(&self, sub_block: usize) -> ([D::F; V], [D::F; V]) {
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
