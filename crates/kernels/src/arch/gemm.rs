//! AVX-512 GEMM: one or two panels of weights times many rows of activations. `matmul::reference` defines the
//! result.
//!
//! A K-block of one or two panels is unpacked once into a buffer that fits the L1 cache, and multiplied with
//! many rows of activations, a few rows at a time. The accumulators of each row carry over from K-block to
//! K-block, so the order of additions is that of the GEMV kernels.
//!
//! ```text
//! unpacked quants: for every 32 columns: quants [panel][group][64], scale f32 [panel][sub_block][16],
//!                  shift f32 [panel][sub_block][16] in formats with a shift
//! unpacked floats: for every column: weight f32 [panel][16]
//! ```

use super::int8_dot::{Avx512, Int8Dot};
use super::packed_block::{PackedBlock, each_row, load_weights, zero_point_shift};
use crate::layout::activation_block::ActivationBlock;
use crate::layout::gemm::{GemmWorkspace, UNPACKED_BYTES};
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, PackedFormat};
use crate::quant::QuantFormat;
use crate::{Activations, Format};
use core::arch::x86_64::*;
use std::ops::Range;

/// Blocks of 32 columns in a K-block: whole tiles of any format.
const K_BLOCK_BLOCKS: usize = 16;
/// Columns of floats in a K-block.
const K_BLOCK_COLS: usize = 192;
/// Rows of activations per load of quants.
const QUANT_ROWS: usize = 6;
/// Rows of activations per load of floats.
const FLOAT_ROWS: usize = 6;

const _: () = assert!(K_BLOCK_COLS.is_multiple_of(2) && K_BLOCK_COLS * 2 * LINE <= UNPACKED_BYTES);

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

pub(super) use in_row_groups;

/// Prefetches the weights of the next K-block while rows are multiplied.
struct PanelPrefetcher<const N: usize> {
    from: [*const u8; N],
    /// Bytes of each panel that were prefetched, and in all.
    done: usize,
    bytes: usize,
    /// Bytes per row of activations.
    step: usize,
}

impl<const N: usize> PanelPrefetcher<N> {
    /// Prefetches `bytes` bytes of each panel from `start` on, or the start of the next panels, in equal parts
    /// for each of `rows` rows.
    fn new(panels: &[u8], start: usize, bytes: usize, rows: usize) -> Self {
        let panel_bytes = panels.len() / N;
        let start = if start < panel_bytes {
            start
        } else {
            panels.len()
        };
        Self {
            from: std::array::from_fn(|n| panels.as_ptr().wrapping_add(n * panel_bytes + start)),
            done: 0,
            bytes,
            step: bytes.div_ceil(rows),
        }
    }

    /// Prefetches the part of `rows` rows.
    #[inline(always)]
    fn advance(&mut self, rows: usize) {
        let end = (self.done + rows * self.step).min(self.bytes);
        for at in (self.done.next_multiple_of(LINE)..end).step_by(LINE) {
            for from in self.from {
                // SAFETY: a prefetch reads nothing; an address beyond the weights is ignored.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(at).cast()) };
            }
        }
        self.done = end;
    }
}

/// Bytes of an unpacked block of a panel.
const fn unpacked_block_bytes(quant: &QuantFormat) -> usize {
    let scales = if quant.has_shift() { 2 } else { 1 };
    (GROUPS + scales * quant.sub_blocks_per_block()) * LINE
}

/// Multiplies `N` panels of quants with the rows.
///
/// # Safety
/// The processor has AVX-512 with VNNI.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn gemm_quants<P: PackedFormat, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    let quant = P::QUANT;
    const { assert!(K_BLOCK_BLOCKS * N * unpacked_block_bytes(&P::QUANT) <= UNPACKED_BYTES) };
    let panel_bytes = panels.len() / N;
    let tiles = panel_bytes / quant.tile_bytes();
    assert!(
        rows.len() <= workspace.sums.len()
            && x.blocks(rows.start).len() >= tiles * quant.tile_blocks()
    );
    workspace.sums[..rows.len()].fill([0.0; 4 * LANES]);
    let tiles_per_k_block = K_BLOCK_BLOCKS / quant.tile_blocks();
    for first in (0..tiles).step_by(tiles_per_k_block) {
        let count = tiles_per_k_block.min(tiles - first);
        let column = first * quant.tile_blocks();
        let blocks = count * quant.tile_blocks();
        // SAFETY: the tiles are within each panel; `UNPACKED_BYTES` holds a K-block; each row has as many
        // blocks as a panel, and the workspace has sums for each row.
        unsafe {
            for panel in 0..N {
                let from = panels
                    .as_ptr()
                    .add(panel * panel_bytes + first * quant.tile_bytes());
                unpack_quants::<P, N>(from, count, panel, workspace.unpacked.as_mut_ptr());
            }
            let mut next = PanelPrefetcher::<N>::new(
                panels,
                (first + count) * quant.tile_bytes(),
                count * quant.tile_bytes(),
                rows.len(),
            );
            in_row_groups!(0..rows.len(), |row, M| {
                next.advance(M);
                let mut at = [std::ptr::null::<ActivationBlock>(); M];
                for (m, at) in at.iter_mut().enumerate() {
                    *at = x.blocks(rows.start + row + m).as_ptr().add(column);
                }
                let sums = workspace.sums.as_mut_ptr().add(row).cast();
                multiply_quants::<P, N, M>(workspace.unpacked.as_ptr(), blocks, &at, sums);
            }, 6 4 2 1);
        }
    }
    if zero_point_shift::<Avx512>(&quant) > 0 {
        let unshift = 1.0 / (1 << zero_point_shift::<Avx512>(&quant)) as f32;
        for sum in workspace.sums[..rows.len()].as_flattened_mut() {
            *sum *= unshift;
        }
    }
}

/// Unpacks `tiles` tiles of one panel.
///
/// # Safety
/// As [`gemm_quants`]; `from` points to `tiles` tiles of a panel, and `unpacked` holds them for `N` panels.
#[inline(always)]
unsafe fn unpack_quants<P: PackedFormat, const N: usize>(
    from: *const u8,
    tiles: usize,
    panel: usize,
    unpacked: *mut u8,
) {
    let quant = P::QUANT;
    let (sub_blocks, size) = (quant.sub_blocks_per_block(), unpacked_block_bytes(&quant));
    // SAFETY: guaranteed by the caller.
    unsafe {
        for tile in 0..tiles {
            let at = from.add(tile * quant.tile_bytes());
            for block in 0..quant.tile_blocks() {
                let unpacked = unpacked.add((tile * quant.tile_blocks() + block) * N * size);
                let block = PackedBlock {
                    tile: at,
                    block,
                    first: 0,
                };
                let quants = block.load_quants::<Avx512, P>();
                for (group, quants) in quants.into_iter().enumerate() {
                    _mm512_store_si512(
                        unpacked.add((panel * GROUPS + group) * LINE).cast(),
                        quants,
                    );
                }
                let scales = unpacked.add(N * GROUPS * LINE);
                for sub_block in 0..sub_blocks {
                    let (scale, shift) = block.load_scales::<Avx512, P>(sub_block);
                    let at = panel * sub_blocks + sub_block;
                    _mm512_store_ps(scales.add(at * LINE).cast(), scale);
                    if quant.has_shift() {
                        _mm512_store_ps(scales.add((N * sub_blocks + at) * LINE).cast(), shift);
                    }
                }
            }
        }
    }
}

/// Adds the products of unpacked quants with `M` rows to the accumulators, which are four lines apart.
///
/// # Safety
/// As [`gemm_quants`]; `unpacked` and each of `rows` have `blocks` blocks.
#[inline(always)]
unsafe fn multiply_quants<P: PackedFormat, const N: usize, const M: usize>(
    unpacked: *const u8,
    blocks: usize,
    rows: &[*const ActivationBlock; M],
    sums: *mut f32,
) {
    const { assert!(M <= QUANT_ROWS) };
    let quant = P::QUANT;
    let (sub_blocks, groups_per_sub_block) =
        (quant.sub_blocks_per_block(), quant.sub_block_weights() / 4);
    let bits = quant.factor_bits();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); N]; M];
        each_row!(m in M => {
            each_row!(p in N => { acc[m][p] = _mm512_loadu_ps(sums.add(m * 4 * LANES + p * LANES)); });
        });
        for block in 0..blocks {
            let quants = unpacked.add(block * N * unpacked_block_bytes(&quant));
            let scales = quants.add(N * GROUPS * LINE);
            for sub_block in 0..sub_blocks {
                let sum_index = if sub_blocks == 1 { 0 } else { 1 + sub_block };
                let mut dots = [[_mm512_setzero_si512(); N]; M];
                each_row!(m in M => {
                    let start = Avx512::initial_sum(&*rows[m].add(block), sum_index, quant.zero_log2, bits);
                    dots[m] = [start; N];
                });
                for group in
                    sub_block * groups_per_sub_block..(sub_block + 1) * groups_per_sub_block
                {
                    let mut w = [_mm512_setzero_si512(); N];
                    each_row!(p in N => {
                        w[p] = _mm512_load_si512(quants.add((p * GROUPS + group) * LINE).cast());
                    });
                    each_row!(m in M => {
                        let x = (&raw const (*rows[m].add(block)).quants).cast::<i32>().add(group);
                        let x = _mm512_set1_epi32(*x);
                        each_row!(p in N => { dots[m][p] = _mm512_dpbusd_epi32(dots[m][p], w[p], x); });
                    });
                }
                each_row!(m in M => {
                    let x = &*rows[m].add(block);
                    each_row!(p in N => {
                        let at = scales.add((p * sub_blocks + sub_block) * LINE);
                        let scale = _mm512_load_ps(at.cast());
                        acc[m][p] = _mm512_fmadd_ps(Avx512::scaled_sum(dots[m][p], x), scale, acc[m][p]);
                        if quant.has_shift() {
                            let shift = _mm512_load_ps(at.add(N * sub_blocks * LINE).cast());
                            let moment = _mm512_set1_ps(x.scaled_sums[sum_index]);
                            acc[m][p] = _mm512_fmadd_ps(moment, shift, acc[m][p]);
                        }
                    });
                });
            }
        }
        each_row!(m in M => {
            each_row!(p in N => { _mm512_storeu_ps(sums.add(m * 4 * LANES + p * LANES), acc[m][p]); });
        });
    }
}

/// Multiplies `N` panels of floats with the rows.
///
/// # Safety
/// The processor has AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn gemm_floats<const F: u8, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    let width = if F == Format::F32 as u8 { 4 } else { 2 };
    let panel_bytes = panels.len() / N;
    let cols = panel_bytes / (LANES * width);
    assert!(rows.len() <= workspace.sums.len() && x.floats(rows.start).len() >= cols);
    workspace.sums[..rows.len()].fill([0.0; 4 * LANES]);
    for first in (0..cols).step_by(K_BLOCK_COLS) {
        let count = K_BLOCK_COLS.min(cols - first);
        // SAFETY: columns are within each panel; `UNPACKED_BYTES` holds a K-block; each row has as many columns
        // as a panel, and the workspace has sums for each row.
        unsafe {
            for panel in 0..N {
                let from = panels
                    .as_ptr()
                    .add(panel * panel_bytes + first * LANES * width);
                for col in 0..count {
                    let from = from.add(col * LANES * width);
                    let to = workspace
                        .unpacked
                        .as_mut_ptr()
                        .add((col * N + panel) * LINE);
                    _mm512_store_ps(to.cast(), load_weights::<Avx512, F>(from));
                }
            }
            let mut next = PanelPrefetcher::<N>::new(
                panels,
                (first + count) * LANES * width,
                count * LANES * width,
                rows.len(),
            );
            in_row_groups!(0..rows.len(), |row, M| {
                next.advance(M);
                let mut at = [std::ptr::null::<f32>(); M];
                for (m, at) in at.iter_mut().enumerate() {
                    *at = x.floats(rows.start + row + m).as_ptr().add(first);
                }
                let sums = workspace.sums.as_mut_ptr().add(row).cast();
                multiply_floats::<N, M>(workspace.unpacked.as_ptr().cast(), count / 2, &at, sums);
            }, 6 3 1);
        }
    }
    for sums in &mut workspace.sums[..rows.len()] {
        for panel in 0..N {
            for lane in 0..LANES {
                let even = 2 * panel * LANES + lane;
                sums[panel * LANES + lane] = sums[even] + sums[even + LANES];
            }
        }
    }
}

/// Adds the products of unpacked floats with `M` rows to the accumulators of even and odd columns, which are
/// four lines apart.
///
/// # Safety
/// As [`gemm_floats`]; `unpacked` and each of `rows` have `pairs` pairs of columns.
#[inline(always)]
unsafe fn multiply_floats<const N: usize, const M: usize>(
    unpacked: *const f32,
    pairs: usize,
    rows: &[*const f32; M],
    sums: *mut f32,
) {
    const { assert!(M <= FLOAT_ROWS) };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut acc = [[[_mm512_setzero_ps(); 2]; N]; M];
        each_row!(m in M => {
            each_row!(p in N => {
                let at = sums.add(m * 4 * LANES + 2 * p * LANES);
                acc[m][p] = [_mm512_loadu_ps(at), _mm512_loadu_ps(at.add(LANES))];
            });
        });
        for pair in 0..pairs {
            each_row!(parity in 2 => {
                let col = 2 * pair + parity;
                let mut w = [_mm512_setzero_ps(); N];
                each_row!(p in N => { w[p] = _mm512_load_ps(unpacked.add((col * N + p) * LANES)); });
                each_row!(m in M => {
                    let x = _mm512_set1_ps(*rows[m].add(col));
                    each_row!(p in N => {
                        acc[m][p][parity] = _mm512_fmadd_ps(w[p], x, acc[m][p][parity]);
                    });
                });
            });
        }
        each_row!(m in M => {
            each_row!(p in N => {
                let at = sums.add(m * 4 * LANES + 2 * p * LANES);
                _mm512_storeu_ps(at, acc[m][p][0]);
                _mm512_storeu_ps(at.add(LANES), acc[m][p][1]);
            });
        });
    }
}
