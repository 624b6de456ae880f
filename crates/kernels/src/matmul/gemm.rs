//! GEMM: many rows of activations times weights, with one or two panels unpacked once for many rows.

use super::output::{Stores, write_panel_row};
use crate::Activations;
use crate::layout::gemm::{GEMM_ROWS_MAX, GemmKernels, GemmWorkspace};
use crate::matrix::Panels;
use crate::packing::LANES;
use crate::pool::DisjointSlice;
use std::ops::Range;

/// Multiplies the panels of a group with rows.
pub(super) fn multiply(
    gemm: GemmKernels,
    workspace: &mut GemmWorkspace,
    w: &Panels<'_>,
    x: &Activations,
    rows: Range<usize>,
    panels: &Range<usize>,
    out: &DisjointSlice<'_, f32>,
) {
    let most = (gemm.rows_bytes / x.row_bytes()).clamp(LANES, GEMM_ROWS_MAX);
    // Calls of about as many rows each.
    let some = rows.len().div_ceil(rows.len().div_ceil(most).max(1)).max(1);
    let stores = Stores::new(rows.len() * w.rows());
    let end = rows.end;
    for row in rows.step_by(some) {
        let rows = row..(row + some).min(end);
        for first in panels.clone().step_by(2) {
            let pair = first..(first + 2).min(panels.end);
            #[expect(unsafe_code, reason = "kernels need a level")]
            // SAFETY: the kernel was chosen by the matrix's Isa, which proves the level.
            unsafe {
                gemm.kernels[pair.len() - 1](w.some(pair.clone()), x, rows.clone(), workspace);
            }
            for (row, sums) in rows.clone().zip(&workspace.sums) {
                for (panel, sums) in pair.clone().zip(sums.as_chunks::<LANES>().0) {
                    write_panel_row(w.rows(), row, panel, sums, (out, stores));
                }
            }
        }
    }
    stores.finish();
}
