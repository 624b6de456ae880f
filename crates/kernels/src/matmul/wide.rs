//! Many rows times weights: a panel or two is taken apart once for many rows.

use super::write::write;
use crate::layout::gemm::{Desk, ROWS_MAX, Wide};
use crate::packing::LANES;
use crate::pool::Disjoint;
use crate::{Activations, Matrix};
use std::ops::Range;

/// Rows from which this is faster than taking weights apart for every few rows.
pub(super) const ROWS_MIN: usize = 9;
/// Bytes of activations that one kernel call takes: a core's own cache holds them while the panels of
/// a group pass by.
const ROWS_BYTES: usize = 768 << 10;
/// Multiplies the panels of a group with all rows.
pub(super) fn multiply(
    kernels: [Wide; 2],
    desk: &mut Desk,
    w: &Matrix,
    x: &Activations,
    panels: &Range<usize>,
    out: &Disjoint<'_, f32>,
) {
    let some = (ROWS_BYTES / x.row_bytes()).clamp(LANES, ROWS_MAX);
    for row in (0..x.rows()).step_by(some) {
        let rows = row..(row + some).min(x.rows());
        for first in panels.clone().step_by(2) {
            let pair = first..(first + 2).min(panels.end);
            #[expect(unsafe_code, reason = "kernels need a level")]
            // SAFETY: the kernel was chosen by the matrix's Isa, which proves the level.
            unsafe {
                kernels[pair.len() - 1](w.some_panels(pair.clone()), x, rows.clone(), desk);
            }
            for (row, sums) in rows.clone().zip(&desk.sums) {
                for (panel, sums) in pair.clone().zip(sums.as_chunks::<LANES>().0) {
                    write(w, row, panel, sums, out);
                }
            }
        }
    }
}
