//! Many rows times weights: a panel or two is taken apart once for many rows.

use super::write;
use crate::packing::LANES;
use crate::pool::Disjoint;
use crate::{Activations, Matrix};
use std::ops::Range;

/// Rows from which this is faster than taking weights apart for every few rows.
pub(super) const ROWS_MIN: usize = 9;
/// Rows that one kernel call takes at most.
const ROWS_MAX: usize = 128;
/// Bytes of activations that one kernel call takes: a core's own cache holds them while the panels of
/// a group pass by.
const ROWS_BYTES: usize = 768 << 10;
/// Bytes of weights taken apart at a time: the innermost cache holds them while rows pass by.
pub(crate) const READY_BYTES: usize = 25 << 10;

/// Multiplies one or two panels (which one is fixed by the kernel) with rows of the activations, at
/// most [`ROWS_MAX`]. Of each row's sums in the desk, the first 16 are the first panel's, the next the
/// second's.
///
/// # Safety
/// The processor has the level that the kernel was chosen for.
pub(crate) type Wide = unsafe fn(panels: &[u8], x: &Activations, rows: Range<usize>, &mut Desk);

/// What a worker works on, on its stack.
#[repr(C, align(64))]
pub(crate) struct Desk {
    /// Weights taken apart.
    pub(crate) ready: [u8; READY_BYTES],
    /// Two sums for each row of the panels.
    pub(crate) sums: [[f32; 4 * LANES]; ROWS_MAX],
}

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

impl Desk {
    pub(super) fn new() -> Self {
        Self {
            ready: [0; READY_BYTES],
            sums: [[0.0; 4 * LANES]; ROWS_MAX],
        }
    }
}
