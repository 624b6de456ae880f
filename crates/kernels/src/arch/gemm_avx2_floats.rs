//! AVX2 GEMM of floats: one or two panels times many rows of activations. `matmul::reference` defines the result.
//!
//! As in [`super::gemm`], a K-block is unpacked once into the L1 cache and multiplied with many rows. The sums of even and
//! of odd columns of six rows would not fit the registers, so the even columns of a K-block are multiplied first. A few rows
//! are multiplied with all of the K-block, while the next rows are prefetched: no cache but the first needs to hold them.
//!
//! Unpacked floats: `(panels, 2, pairs of columns, 16)` f32, even columns first.

use crate::arch::int8_dot::{Avx2, Int8Dot};
use crate::arch::packed_block::{each_row, load_weights, prefetch_ahead_second};
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
const ROWS: usize = 6;
/// Vectors of a line: eight rows of weights each.
const HALVES: usize = 2;

const _: () = assert!(K_BLOCK_COLS.is_multiple_of(2) && K_BLOCK_COLS * 2 * LINE <= UNPACKED_BYTES);

/// Multiplies `N` panels of floats with the rows.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn gemm_floats_avx2<const F: u8, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    let col_bytes = LANES * if F == Format::F32 as u8 { 4 } else { 2 };
    let panel_bytes = panels.len() / N;
    let cols = panel_bytes / col_bytes;
    assert!(rows.len() <= workspace.sums.len() && x.floats(rows.start).len() >= cols);
    workspace.sums[..rows.len()].fill([0.0; 4 * LANES]);
    for first in (0..cols).step_by(K_BLOCK_COLS) {
        let pairs = K_BLOCK_COLS.min(cols - first) / 2;
        let unpacked: *mut f32 = workspace.unpacked.as_mut_ptr().cast();
        let sums: *mut f32 = workspace.sums.as_mut_ptr().cast();
        for panel in 0..N {
            // SAFETY: columns are within the panel; `UNPACKED_BYTES` holds a K-block of two panels.
            unsafe {
                let packed = panels.as_ptr().add(panel * panel_bytes + first * col_bytes);
                unpack::<F>(packed, pairs, unpacked.add(panel * 2 * pairs * LANES));
            }
        }
        // SAFETY: each row has as many columns as a panel, and the workspace has four lines of sums for each row.
        unsafe { multiply_rows::<N>(unpacked, pairs, x, rows.clone(), (first, sums)) };
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

/// Unpacks pairs of columns of a panel: even columns, then odd ones.
///
/// # Safety
/// The processor has AVX2, FMA and F16C; the panel has the columns, and `to` has a line for each.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack<const F: u8>(packed: *const u8, pairs: usize, to: *mut f32) {
    let width = if F == Format::F32 as u8 { 4 } else { 2 };
    // SAFETY: guaranteed by the caller.
    unsafe {
        for pair in 0..pairs {
            let packed = packed.add(2 * pair * LANES * width);
            prefetch_ahead_second(packed, 2 * LANES * width);
            for parity in 0..2 {
                for half in 0..HALVES {
                    let from = packed.add((parity * LANES + half * Avx2::ROWS) * width);
                    let weights: __m256 = load_weights::<Avx2, F>(from);
                    let at = (parity * pairs + pair) * LANES + half * Avx2::ROWS;
                    _mm256_storeu_ps(to.add(at), weights);
                }
            }
        }
    }
}

/// Adds the products of `weights`, `(N, 2, pairs, 16)`, and of the columns of `rows` from `first` on to the sums, which are
/// four lines for each row. Groups of rows are about equally long, the longest first.
///
/// # Safety
/// As [`gemm_floats_avx2`]; the rows have the columns, and the sums lines for each row.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_rows<const N: usize>(
    weights: *const f32,
    pairs: usize,
    x: &Activations,
    rows: Range<usize>,
    (first, sums): (usize, *mut f32),
) {
    let columns = |row: usize| x.floats(rows.start + row)[first..].as_ptr();
    let mut row = 0;
    while row < rows.len() {
        let left = rows.len() - row;
        macro_rules! group {
            ($count:literal) => {{
                let at: [*const f32; $count] = std::array::from_fn(|m| columns(row + m));
                for part in 0..2 * N {
                    for next in row + $count..rows.len().min(row + 2 * $count) {
                        prefetch_share(columns(next), 2 * pairs, (part, 2 * N));
                    }
                    let at = at.map(|row| row.wrapping_add(part % 2));
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        let weights = weights.add(part * pairs * LANES);
                        let sums = sums.add((row * 4 + part) * LANES);
                        multiply_group(weights, pairs, &at, sums);
                    }
                }
                $count
            }};
        }
        row += match left.div_ceil(left.div_ceil(ROWS)) {
            6 => group!(6),
            5 => group!(5),
            4 => group!(4),
            2..4 => group!(2),
            _ => group!(1),
        };
    }
}

/// Prefetches one of `shares` shares of so many columns of a row.
fn prefetch_share(row: *const f32, cols: usize, (share, shares): (usize, usize)) {
    let line_cols = LINE / size_of::<f32>();
    for line in (share..cols.div_ceil(line_cols)).step_by(shares) {
        prefetch_nearest(row.wrapping_add(line * line_cols).cast());
    }
}

/// Adds the products with `M` rows to their sums.
///
/// # Safety
/// As [`multiply_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn multiply_group<const M: usize>(
    weights: *const f32,
    pairs: usize,
    rows: &[*const f32; M],
    sums: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut acc = [[_mm256_setzero_ps(); HALVES]; M];
        each_row!(m in M => {
            let at = sums.add(m * 4 * LANES);
            acc[m] = [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(Avx2::ROWS))];
        });
        for pair in 0..pairs {
            let at = weights.add(pair * LANES);
            let w = [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(Avx2::ROWS))];
            each_row!(m in M => {
                let x = _mm256_broadcast_ss(&*rows[m].add(2 * pair));
                acc[m][0] = _mm256_fmadd_ps(w[0], x, acc[m][0]);
                acc[m][1] = _mm256_fmadd_ps(w[1], x, acc[m][1]);
            });
        }
        each_row!(m in M => {
            let at = sums.add(m * 4 * LANES);
            _mm256_storeu_ps(at, acc[m][0]);
            _mm256_storeu_ps(at.add(Avx2::ROWS), acc[m][1]);
        });
    }
}
