//! AVX2 GEMM: one or two panels of quants times many rows of activations. `matmul::reference` defines the result.
//!
//! As in [`super::gemm`], a K-block is unpacked once into the L1 cache and multiplied with many rows; the accumulators
//! of each row carry over from K-block to K-block. AVX2 adds two products of bytes in 16 bits at most, so short
//! quants are summed there, as many as fit, before an instruction widens the sums to 32 bits.

mod products;
mod unpacked;

use super::int8_dot::sums_in_i16;
use super::packed_block::each_row;
use crate::Activations;
use crate::layout::activation_block::ActivationBlock;
use crate::layout::gemm::{GemmWorkspace, UNPACKED_BYTES};
use crate::memory::LINE;
use crate::packing::{LANES, PackedFormat};
use core::arch::x86_64::*;
use products::{add_by_groups, add_by_rows, load_sums, store_sums};
use std::ops::Range;
use unpacked::{HALVES, k_block_blocks, unpack_panel, unpacked_block_bytes};

/// Runs `$body` over `$rows` in groups, each as long as the largest of `$counts` that fits.
macro_rules! in_row_groups {
    ($rows:expr, |$row:ident, $count:ident| $body:expr, $($counts:literal)*) => {{
        let Range { start: mut $row, end } = $rows;
        $(
            while end - $row >= $counts {
                const $count: usize = $counts;
                $body;
                $row += $counts;
            }
        )*
    }};
}

/// Rows of activations per load of quants.
const ROWS: usize = 4;

/// Multiplies `N` panels of quants with the rows.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn gemm_quants_avx2<P: PackedFormat, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    let quant = P::QUANT;
    let unpacked_bytes = const { k_block_blocks(&P::QUANT) * unpacked_block_bytes(&P::QUANT) };
    const { assert!(N * k_block_blocks(&P::QUANT) * unpacked_block_bytes(&P::QUANT) <= UNPACKED_BYTES) };
    let panel_bytes = panels.len() / N;
    let tiles = panel_bytes / quant.tile_bytes();
    assert!(
        rows.len() <= workspace.sums.len()
            && x.blocks(rows.start).len() >= tiles * quant.tile_blocks()
    );
    workspace.sums[..rows.len()].fill([0.0; 4 * LANES]);
    let tiles_per_k_block = k_block_blocks(&quant) / quant.tile_blocks();
    for first in (0..tiles).step_by(tiles_per_k_block) {
        let count = tiles_per_k_block.min(tiles - first);
        let (column, blocks) = (first * quant.tile_blocks(), count * quant.tile_blocks());
        let mut parts: [UnpackedPart; N] = std::array::from_fn(|panel| {
            let at = panel * panel_bytes + first * quant.tile_bytes();
            let bytes = count * quant.tile_bytes();
            // The next panels follow these.
            let next = if first + count < tiles {
                at + bytes
            } else {
                panels.len() + panel * panel_bytes
            };
            // SAFETY: the tiles are within the panel; `UNPACKED_BYTES` holds a K-block of each panel.
            let unpacked = unsafe {
                let unpacked = workspace.unpacked.as_mut_ptr().add(panel * unpacked_bytes);
                unpack_panel::<P>(panels.as_ptr().add(at), count, unpacked);
                unpacked
            };
            UnpackedPart {
                unpacked,
                blocks,
                next: panels.as_ptr().wrapping_add(next),
                bytes,
            }
        });
        // SAFETY: each row has as many blocks as a panel, and the workspace has sums for each row.
        unsafe {
            let sums = workspace.sums.as_mut_ptr().cast();
            multiply_rows::<P>(&mut parts, x, rows.clone(), column, sums);
        }
    }
}

/// The K-block of a panel, and what is prefetched while the K-block is multiplied.
struct UnpackedPart {
    unpacked: *const u8,
    /// Blocks of 32 columns.
    blocks: usize,
    /// The next packed weights, and how many bytes.
    next: *const u8,
    bytes: usize,
}

/// Adds the products of parts of panels and of the blocks of `rows` from `column` on to the accumulators, which are
/// four lines apart. Compiled once for one panel and for two.
///
/// # Safety
/// The processor has AVX2, FMA and F16C; parts and rows have the blocks, and `sums` has lines for each row.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
unsafe fn multiply_rows<P: PackedFormat>(
    parts: &mut [UnpackedPart],
    x: &Activations,
    rows: Range<usize>,
    column: usize,
    sums: *mut f32,
) {
    let calls = rows.len().div_ceil(ROWS);
    in_row_groups!(0..rows.len(), |row, M| {
        let mut at = [std::ptr::null::<ActivationBlock>(); M];
        for (m, at) in at.iter_mut().enumerate() {
            *at = x.blocks(rows.start + row + m)[column..].as_ptr();
        }
        for (panel, part) in parts.iter_mut().enumerate() {
            let step = part.bytes.div_ceil(calls * part.blocks);
            // SAFETY: guaranteed by the caller.
            unsafe {
                let sums = sums.add(row * 4 * LANES + panel * LANES);
                multiply_panel::<P, M>(part, step, &at, sums);
            }
        }
    }, 4 2 1);
}

/// Adds the products of an unpacked panel with `M` rows to the accumulators, and prefetches `step` bytes for each block.
///
/// # Safety
/// As [`multiply_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn multiply_panel<P: PackedFormat, const M: usize>(
    part: &mut UnpackedPart,
    step: usize,
    rows: &[*const ActivationBlock; M],
    sums: *mut f32,
) {
    let quant = P::QUANT;
    let sub_blocks = quant.sub_blocks_per_block();
    let by_rows = sums_in_i16(quant.factor_bits()) == 2 && quant.sub_block_weights() == 16;
    let mut next = part.next;
    // SAFETY: guaranteed by the caller; a prefetch reads nothing, so the address may be beyond the weights.
    unsafe {
        let mut acc: [[__m256; HALVES]; M] = [[_mm256_setzero_ps(); HALVES]; M];
        if !by_rows {
            each_row!(m in M => { acc[m] = load_sums(sums, m); });
        }
        for block in 0..part.blocks {
            let quants = part.unpacked.add(block * unpacked_block_bytes(&quant));
            for line in (0..step).step_by(LINE) {
                _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line).cast());
            }
            next = next.wrapping_add(step);
            let mut x = [std::ptr::null(); M];
            each_row!(m in M => { x[m] = rows[m].add(block); });
            each_row!(sub_block in sub_blocks => {
                if by_rows {
                    add_by_rows::<P, M>(quants, sub_block, &x, sums);
                } else {
                    add_by_groups::<P, M>(quants, sub_block, &x, &mut acc);
                }
            });
        }
        if !by_rows {
            each_row!(m in M => { store_sums(sums, m, acc[m]); });
        }
    }
    part.next = next;
}
