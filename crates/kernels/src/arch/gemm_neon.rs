//! NEON GEMM: one or two panels of quants times many rows of activations, with dot products of bytes or with products
//! of byte matrices. `matmul::reference` defines the result.
//!
//! A K-block of a panel is unpacked once into a buffer that fits the L1 cache, as signed bytes without zero point, and
//! multiplied with many rows of activations, a few rows at a time. The accumulators of each row carry over from K-block to
//! K-block, so the order of additions is that of the GEMV kernels.
//!
//! ```text
//! unpacked: for every 32 columns and each half (8 rows) of the panel:
//!           quants i8, for dot products [group][8 rows][4 columns], for matrices [pair of groups][4][2 rows][8 columns],
//!           scale f32 [sub_block][8], shift f32 [sub_block][8] in formats with a shift
//! ```

use super::int8_dot::neon::{DOTPROD, NeonRows, sdot_lane, smmla};
use super::packed_block::{PackedBlock, each_row};
use crate::Activations;
use crate::layout::activation_block::ActivationBlock;
use crate::layout::gemm::{GemmWorkspace, UNPACKED_BYTES};
use crate::packing::{GROUPS, LANES, PackedFormat};
use crate::quant::QuantFormat;
use core::arch::aarch64::*;
use std::ops::Range;

/// Blocks of 32 columns in a K-block: whole tiles of any format.
const K_BLOCK_BLOCKS: usize = 16;
/// Rows of a half of a panel.
const HALF: usize = LANES / 2;
/// Bytes of four columns, or of an f32, for each row of a half.
const HALF_LINE: usize = 4 * HALF;

/// Bytes of 32 unpacked columns of a half.
const fn half_bytes(quant: &QuantFormat) -> usize {
    let scales = if quant.has_shift() { 2 } else { 1 };
    (GROUPS + scales * quant.sub_blocks_per_block()) * HALF_LINE
}

/// Multiplies `N` panels of quants with the rows, with dot products of bytes.
///
/// # Safety
/// The processor has NEON and `FEAT_DotProd`.
#[target_feature(enable = "neon,dotprod")]
pub(crate) unsafe fn gemm_quants_dotprod<P: PackedFormat, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    // SAFETY: compiled for the level.
    unsafe { multiply_panels::<P, N, false>(panels, x, rows, workspace) };
}

/// Multiplies `N` panels of quants with the rows, with products of byte matrices.
///
/// # Safety
/// The processor has NEON, `FEAT_DotProd` and `FEAT_I8MM`.
#[target_feature(enable = "neon,dotprod,i8mm")]
pub(crate) unsafe fn gemm_quants_i8mm<P: PackedFormat, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    // SAFETY: compiled for the level.
    unsafe { multiply_panels::<P, N, true>(panels, x, rows, workspace) };
}

/// # Safety
/// Compiled for the level.
#[inline(always)]
unsafe fn multiply_panels<P: PackedFormat, const N: usize, const MATRICES: bool>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    let quant = P::QUANT;
    const { assert!(K_BLOCK_BLOCKS * 2 * half_bytes(&P::QUANT) <= UNPACKED_BYTES) };
    let panel_bytes = panels.len() / N;
    let tiles = panel_bytes / quant.tile_bytes();
    assert!(
        rows.len() <= workspace.sums.len()
            && x.blocks(rows.start).len() >= tiles * quant.tile_blocks()
    );
    workspace.sums[..rows.len()].fill([0.0; 4 * LANES]);
    let unpacked = workspace.unpacked.as_mut_ptr();
    let tiles_per_k_block = K_BLOCK_BLOCKS / quant.tile_blocks();
    for panel in 0..N {
        for first in (0..tiles).step_by(tiles_per_k_block) {
            let count = tiles_per_k_block.min(tiles - first);
            let at = panel * panel_bytes + first * quant.tile_bytes();
            // SAFETY: the tiles are within the panel; `UNPACKED_BYTES` holds a K-block; each row has as many blocks as
            // a panel, and the workspace has sums for each row.
            unsafe {
                unpack::<P, MATRICES>(panels.as_ptr().add(at), count, unpacked);
                let part = UnpackedPanel {
                    at: unpacked,
                    first: first * quant.tile_blocks(),
                    blocks: count * quant.tile_blocks(),
                };
                let mut row = 0;
                while row < rows.len() {
                    let sums = workspace.sums.as_mut_ptr().add(row).cast::<f32>();
                    let sums = sums.add(panel * LANES);
                    let from = rows.start + row;
                    row += match rows.len() - row {
                        1 => part.multiply_rows::<P, 1, MATRICES>(x, from, sums),
                        2..=3 => part.multiply_rows::<P, 2, MATRICES>(x, from, sums),
                        _ => part.multiply_rows::<P, 4, MATRICES>(x, from, sums),
                    };
                }
            }
        }
    }
}

/// Unpacks `tiles` tiles of a panel.
///
/// # Safety
/// Compiled for the level; `from` points to `tiles` tiles, and `to` has room for them.
#[inline(always)]
unsafe fn unpack<P: PackedFormat, const MATRICES: bool>(
    from: *const u8,
    tiles: usize,
    to: *mut u8,
) {
    let quant = P::QUANT;
    let mut to = to;
    for index in 0..tiles * quant.tile_blocks() * 2 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let block = PackedBlock {
                tile: from.add(index / 2 / quant.tile_blocks() * quant.tile_bytes()),
                block: index / 2 % quant.tile_blocks(),
                first: index % 2 * HALF,
            };
            unpack_half::<P, MATRICES>(block, to);
            to = to.add(half_bytes(&quant));
        }
    }
}

/// Unpacks 32 columns of a half.
///
/// # Safety
/// As [`unpack`].
#[inline(always)]
unsafe fn unpack_half<P: PackedFormat, const MATRICES: bool>(block: PackedBlock, to: *mut u8) {
    let quant = P::QUANT;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let zero = vdupq_n_u8(quant.zero() as u8);
        let quants = block.load_quants::<NeonRows<DOTPROD>, P>();
        for pair in 0..GROUPS / 2 {
            let [[a, b], [c, d]] = [quants[2 * pair], quants[2 * pair + 1]];
            let registers = if MATRICES {
                let (a, b) = (vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b));
                let (c, d) = (vreinterpretq_u32_u8(c), vreinterpretq_u32_u8(d));
                [
                    vreinterpretq_u8_u32(vzip1q_u32(a, c)),
                    vreinterpretq_u8_u32(vzip2q_u32(a, c)),
                    vreinterpretq_u8_u32(vzip1q_u32(b, d)),
                    vreinterpretq_u8_u32(vzip2q_u32(b, d)),
                ]
            } else {
                [a, b, c, d]
            };
            for (i, register) in registers.into_iter().enumerate() {
                let at = to.add(2 * pair * HALF_LINE + 16 * i);
                vst1q_u8(at, vsubq_u8(register, zero));
            }
        }
        let scales = to.add(GROUPS * HALF_LINE).cast::<[float32x4_t; 2]>();
        let sub_blocks = quant.sub_blocks_per_block();
        for sub_block in 0..sub_blocks {
            let (scale, shift) = block.load_scales::<NeonRows<DOTPROD>, P>(sub_block);
            scales.add(sub_block).write_unaligned(scale);
            if quant.has_shift() {
                scales.add(sub_blocks + sub_block).write_unaligned(shift);
            }
        }
    }
}

/// The K-block of a panel.
#[derive(Clone, Copy)]
struct UnpackedPanel {
    at: *const u8,
    /// The first block of 32 columns, and how many.
    first: usize,
    blocks: usize,
}

impl UnpackedPanel {
    /// Adds the products with `M` rows of activations to the accumulators, which are four lines apart. Returns `M`.
    ///
    /// # Safety
    /// Compiled for the level; the rows have the blocks, and `sums` has lines for each row.
    #[inline(always)]
    unsafe fn multiply_rows<P: PackedFormat, const M: usize, const MATRICES: bool>(
        self,
        x: &Activations,
        row: usize,
        sums: *mut f32,
    ) -> usize {
        let mut rows = [std::ptr::null::<ActivationBlock>(); M];
        for (m, at) in rows.iter_mut().enumerate() {
            *at = x.blocks(row + m)[self.first..].as_ptr();
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            for half in 0..2 {
                let sums = sums.add(half * HALF);
                let mut acc = [[vdupq_n_f32(0.0); 2]; M];
                each_row!(m in M => {
                    let at = sums.add(m * 4 * LANES);
                    acc[m] = [vld1q_f32(at), vld1q_f32(at.add(4))];
                });
                for block in 0..self.blocks {
                    let at = self.at.add((2 * block + half) * half_bytes(&P::QUANT));
                    let mut x = [std::ptr::null(); M];
                    each_row!(m in M => { x[m] = rows[m].add(block); });
                    add_block::<P, M, MATRICES>(at, &x, &mut acc);
                }
                each_row!(m in M => {
                    let at = sums.add(m * 4 * LANES);
                    vst1q_f32(at, acc[m][0]);
                    vst1q_f32(at.add(4), acc[m][1]);
                });
            }
        }
        M
    }
}

/// Adds the products of 32 columns of a half with a block of each row.
///
/// # Safety
/// As [`UnpackedPanel::multiply_rows`].
#[inline(always)]
unsafe fn add_block<P: PackedFormat, const M: usize, const MATRICES: bool>(
    quants: *const u8,
    x: &[*const ActivationBlock; M],
    acc: &mut [[float32x4_t; 2]; M],
) {
    let quant = P::QUANT;
    let sub_blocks = quant.sub_blocks_per_block();
    let groups = quant.sub_block_weights() / 4;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let scales = quants.add(GROUPS * HALF_LINE).cast::<f32>();
        each_row!(sub_block in sub_blocks => {
            let part = sub_block * groups..(sub_block + 1) * groups;
            let dots = if MATRICES {
                matrix_products::<M>(quants.cast(), part, x)
            } else {
                dot_products::<M>(quants.cast(), part, x)
            };
            // Index 0 is the sum of the block, 1 and 2 are the sums of its halves.
            let sum_index = if sub_blocks == 1 { 0 } else { 1 + sub_block };
            for i in 0..2 {
                let at = scales.add(sub_block * HALF + 4 * i);
                let scale = vld1q_f32(at);
                each_row!(m in M => {
                    let x = &*x[m];
                    let dot = vmulq_n_f32(vcvtq_f32_s32(dots[m][i]), x.scale);
                    acc[m][i] = vfmaq_f32(acc[m][i], dot, scale);
                    if quant.has_shift() {
                        let shift = vld1q_f32(at.add(sub_blocks * HALF));
                        acc[m][i] = vfmaq_n_f32(acc[m][i], shift, x.scaled_sums[sum_index]);
                    }
                });
            }
        });
    }
}

/// The products of eight rows of weights with `M` rows of activations, in groups of four columns.
///
/// # Safety
/// As [`UnpackedPanel::multiply_rows`].
#[inline(always)]
unsafe fn dot_products<const M: usize>(
    quants: *const i8,
    groups: Range<usize>,
    x: &[*const ActivationBlock; M],
) -> [[int32x4_t; 2]; M] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut dots = [[vdupq_n_s32(0); 2]; M];
        // Groups and lanes are constants.
        macro_rules! add_groups {
            ($($group:literal)*) => {
                $(if groups.start <= $group && $group < groups.end {
                    let at = quants.add($group * HALF_LINE);
                    let (a, b) = (vld1q_s8(at), vld1q_s8(at.add(16)));
                    each_row!(m in M => {
                        let x = vld1q_s8((*x[m]).quants.as_ptr().add($group / 4 * 16));
                        dots[m][0] = sdot_lane::<{ $group % 4 }>(dots[m][0], a, x);
                        dots[m][1] = sdot_lane::<{ $group % 4 }>(dots[m][1], b, x);
                    });
                })*
            };
        }
        add_groups!(0 1 2 3 4 5 6 7);
        dots
    }
}

/// As [`dot_products`], with matrices of two rows and eight columns.
///
/// # Safety
/// As [`UnpackedPanel::multiply_rows`].
#[inline(always)]
unsafe fn matrix_products<const M: usize>(
    quants: *const i8,
    groups: Range<usize>,
    x: &[*const ActivationBlock; M],
) -> [[int32x4_t; 2]; M] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        // Of two rows of activations from row `m` on: four times two rows of weights by two of activations.
        let mut sums = [[vdupq_n_s32(0); 4]; M];
        macro_rules! add_pairs {
            ($($pair:literal)*) => {
                $(if groups.start <= 2 * $pair && 2 * $pair < groups.end {
                    let at = quants.add(2 * $pair * HALF_LINE);
                    let w = [vld1q_s8(at), vld1q_s8(at.add(16)), vld1q_s8(at.add(32)), vld1q_s8(at.add(48))];
                    each_row!(m in M => {
                        if m % 2 == 0 {
                            // A last row without another one is its own neighbor.
                            let a = (*x[m]).quants.as_ptr().add($pair / 2 * 16);
                            let b = (*x[if m + 1 < M { m + 1 } else { m }]).quants.as_ptr().add($pair / 2 * 16);
                            let (a, b) = (vreinterpretq_s64_s8(vld1q_s8(a)), vreinterpretq_s64_s8(vld1q_s8(b)));
                            let x = if $pair % 2 == 0 { vzip1q_s64(a, b) } else { vzip2q_s64(a, b) };
                            let x = vreinterpretq_s8_s64(x);
                            each_row!(i in 4 => { sums[m][i] = smmla(sums[m][i], w[i], x); });
                        }
                    });
                })*
            };
        }
        add_pairs!(0 1 2 3);
        let mut dots = [[vdupq_n_s32(0); 2]; M];
        each_row!(m in M => {
            let [a, b, c, d] = sums[m / 2 * 2];
            dots[m] = if m % 2 == 0 {
                [vuzp1q_s32(a, b), vuzp1q_s32(c, d)]
            } else {
                [vuzp2q_s32(a, b), vuzp2q_s32(c, d)]
            };
        });
        dots
    }
}
