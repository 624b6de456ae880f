//! Writing results of kernels to the output matrix.

use crate::packing::LANES;
use crate::pool::DisjointSlice;

/// Writes the results of one row and panel of a matrix of `outputs` rows.
pub(super) fn write_panel_row(
    outputs: usize,
    row: usize,
    panel: usize,
    results: &[f32; LANES],
    out: &DisjointSlice<'_, f32>,
) {
    let first = panel * LANES;
    let live = LANES.min(outputs - first);
    let at = row * outputs + first;
    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint columns")]
    // SAFETY: each panel belongs, for each row, to one worker, so no other worker writes these outputs.
    let out = unsafe { out.part(at..at + live) };
    match <&mut [f32; LANES]>::try_from(&mut *out) {
        // One vector store, where a slice copy would be a function call.
        Ok(whole) => *whole = *results,
        Err(_) => out.copy_from_slice(&results[..live]),
    }
}
