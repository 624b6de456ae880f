//! Writing results where they belong.

use crate::Matrix;
use crate::packing::LANES;
use crate::pool::DisjointSlice;

/// Puts the results of one row and panel where they belong.
pub(super) fn write_panel_row(
    w: &Matrix,
    row: usize,
    panel: usize,
    results: &[f32; LANES],
    out: &DisjointSlice<'_, f32>,
) {
    let first = panel * LANES;
    let live = LANES.min(w.rows() - first);
    let at = row * w.rows() + first;
    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint columns")]
    // SAFETY: each panel is one worker's, so no other writes these outputs.
    let out = unsafe { out.part(at..at + live) };
    match <&mut [f32; LANES]>::try_from(&mut *out) {
        // One store, where a slice would be a call.
        Ok(whole) => *whole = *results,
        Err(_) => out.copy_from_slice(&results[..live]),
    }
}
