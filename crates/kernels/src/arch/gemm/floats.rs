//! AVX-512 GEMM of floats.

use super::in_row_groups;
use crate::arch::int8_dot::Avx512;
use crate::arch::packed_block::{each_row, load_weights};
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
