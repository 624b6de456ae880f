//! GEMM of AVX-512 and AVX-VNNI: one or two panels of weights times many rows of activations. `matmul::reference`
//! defines the result.
//!
//! A K-block of one or two panels is unpacked once into a buffer that fits the L1 cache, and multiplied with
//! many rows of activations, a few rows at a time. The accumulators of each row carry over from K-block to
//! K-block, so the order of additions is that of the GEMV kernels.
//!
//! ```text
//! unpacked quants: for every 32 columns: quants [group][vector], scale f32 [sub_block][vector],
//!                  shift f32 [sub_block][vector] in formats with a shift
//! unpacked floats: for every column: weight f32 [panel][16]
//! ```
//!
//! This file has the GEMM of floats, `quants` that of quants. The first rows are multiplied while the K-block is unpacked.

mod quants;

pub(crate) use quants::{gemm_quants_avx_vnni, gemm_quants_avx512};

use crate::arch::int8_dot::Avx512;
use crate::arch::packed_block::{each_row, load_weights};
use crate::arch::prefetch::prefetch_nearest;
use crate::layout::gemm::{GemmWorkspace, UNPACKED_BYTES};
use crate::memory::LINE;
use crate::packing::LANES;
use crate::{Activations, Format};
use core::arch::x86_64::*;
use std::ops::Range;

/// Columns in a K-block.
const K_BLOCK_COLS: usize = 192;
/// Rows of activations per load of weights.
const FLOAT_ROWS: usize = 6;
/// Pairs of columns after which weights are prefetched: each panel's two lines of 16-bit floats.
const PREFETCH_PAIRS: usize = 2;

const _: () = assert!(K_BLOCK_COLS.is_multiple_of(2) && K_BLOCK_COLS * 2 * LINE <= UNPACKED_BYTES);

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
    let panel_bytes = panels.len() / N;
    let cols = panel_bytes / col_bytes::<F>();
    assert!(rows.len() <= workspace.sums.len() && x.floats(rows.start).len() >= cols);
    workspace.sums[..rows.len()].fill([0.0; 4 * LANES]);
    for first in (0..cols).step_by(K_BLOCK_COLS) {
        let count = K_BLOCK_COLS.min(cols - first);
        // The next panels follow these.
        let next = if first + count < cols {
            (first + count) * col_bytes::<F>()
        } else {
            panels.len()
        };
        let mut block = FloatBlock {
            packed: panels.as_ptr().wrapping_add(first * col_bytes::<F>()),
            panel_bytes,
            unpacked: workspace.unpacked.as_mut_ptr().cast(),
            pairs: count / 2,
            next: panels.as_ptr().wrapping_add(next),
            next_bytes: count * col_bytes::<F>(),
        };
        // SAFETY: columns are within each panel; `UNPACKED_BYTES` holds a K-block; each row has as many columns
        // as a panel, and the workspace has sums for each row.
        unsafe {
            let sums = workspace.sums.as_mut_ptr().cast();
            multiply_rows::<F, N>(&mut block, x, rows.clone(), first, sums);
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

/// Bytes of a column of a panel.
const fn col_bytes<const F: u8>() -> usize {
    let width = if F == Format::F32 as u8 { 4 } else { 2 };
    LANES * width
}

/// The K-block of a few panels of floats.
struct FloatBlock {
    /// Columns of the first panel.
    packed: *const u8,
    /// Bytes from panel to panel.
    panel_bytes: usize,
    /// Column by column, a line of f32 for each panel.
    unpacked: *mut f32,
    /// Pairs of columns.
    pairs: usize,
    /// The first panel's weights that are needed next, and how many bytes are still to be prefetched.
    next: *const u8,
    next_bytes: usize,
}

impl FloatBlock {
    /// Prefetches `step` bytes of each of `N` panels, if any are left.
    #[inline(always)]
    fn prefetch_next<const N: usize>(&mut self, step: usize) {
        if self.next_bytes == 0 {
            return;
        }
        for panel in 0..N {
            let from = self.next.wrapping_add(panel * self.panel_bytes);
            for line in (0..step).step_by(LINE) {
                prefetch_nearest(from.wrapping_add(line));
            }
        }
        self.next = self.next.wrapping_add(step);
        self.next_bytes = self.next_bytes.saturating_sub(step);
    }

    /// Bytes of each panel to prefetch at a time, so that all are prefetched within `groups` groups of rows.
    fn step(&self, groups: usize) -> usize {
        let times = groups * self.pairs.div_ceil(PREFETCH_PAIRS);
        self.next_bytes.div_ceil(times).next_multiple_of(LINE)
    }

    /// The weights of a column: with `FIRST` packed, and unpacked on the way; else unpacked.
    ///
    /// # Safety
    /// The processor has AVX-512, and the K-block has the column.
    #[inline(always)]
    unsafe fn weights<const F: u8, const N: usize, const FIRST: bool>(
        &self,
        col: usize,
    ) -> [__m512; N] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut w = [_mm512_setzero_ps(); N];
            each_row!(p in N => {
                let at = self.unpacked.add((col * N + p) * LANES);
                if FIRST {
                    let packed = self.packed.add(p * self.panel_bytes + col * col_bytes::<F>());
                    w[p] = load_weights::<Avx512, F>(packed);
                    _mm512_store_ps(at, w[p]);
                } else {
                    w[p] = _mm512_load_ps(at);
                }
            });
            w
        }
    }
}

/// Adds the products of the K-block and of the columns of `rows` from `first` on to the accumulators, which are four
/// lines apart. Groups of rows are about equally long, the longest first.
///
/// # Safety
/// As [`gemm_floats`]; the rows have the columns of the K-block, and `sums` has lines for each row.
#[inline(always)]
unsafe fn multiply_rows<const F: u8, const N: usize>(
    block: &mut FloatBlock,
    x: &Activations,
    rows: Range<usize>,
    first: usize,
    sums: *mut f32,
) {
    let mut row = 0;
    while row < rows.len() {
        let left = rows.len() - row;
        let groups = left.div_ceil(FLOAT_ROWS);
        macro_rules! group {
            ($count:literal, $first:literal) => {{
                let at: [*const f32; $count] =
                    std::array::from_fn(|m| x.floats(rows.start + row + m)[first..].as_ptr());
                let step = block.step(groups);
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let sums = sums.add(row * 4 * LANES);
                    multiply_group::<F, N, $count, $first>(block, step, &at, sums);
                }
                $count
            }};
        }
        // Other sizes come from few rows, for which this kernel is not called: a row at a time will do.
        row += match (row == 0, left.div_ceil(groups)) {
            (true, 6) => group!(6, true),
            (true, 5) => group!(5, true),
            (true, 4) => group!(4, true),
            (true, _) => group!(1, true),
            (false, 6) => group!(6, false),
            (false, 5) => group!(5, false),
            (false, 4) => group!(4, false),
            (false, _) => group!(1, false),
        };
    }
}

/// Adds the products of the K-block with `M` rows to the accumulators of even and odd columns, and prefetches `step`
/// bytes of each panel for each [`PREFETCH_PAIRS`]. With `FIRST` the K-block is unpacked, too.
///
/// # Safety
/// As [`multiply_rows`].
#[inline(always)]
unsafe fn multiply_group<const F: u8, const N: usize, const M: usize, const FIRST: bool>(
    block: &mut FloatBlock,
    step: usize,
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
        for pair in 0..block.pairs {
            if pair % PREFETCH_PAIRS == 0 {
                block.prefetch_next::<N>(step);
            }
            each_row!(parity in 2 => {
                let col = 2 * pair + parity;
                let w = block.weights::<F, N, FIRST>(col);
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
