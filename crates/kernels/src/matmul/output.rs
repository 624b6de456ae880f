//! Writing results of kernels to the output matrix.

use crate::arch::streamed_store;
use crate::packing::LANES;
use crate::pool::DisjointSlice;

/// Bytes of outputs from which a call writes them past the caches, which would not keep them until they are read.
pub(super) const STREAMED_BYTES: usize = 4 << 20;

/// How outputs are written.
#[derive(Clone, Copy)]
pub(super) enum Stores {
    /// Into the caches.
    Cached,
    /// Past the caches; [`Stores::finish`] follows.
    Streamed,
}

impl Stores {
    /// For so many outputs of a call.
    pub(super) fn new(outputs: usize) -> Self {
        if outputs * size_of::<f32>() < STREAMED_BYTES {
            Self::Cached
        } else {
            Self::Streamed
        }
    }

    /// Before other threads may read what this one wrote.
    pub(super) fn finish(self) {
        if matches!(self, Self::Streamed) {
            streamed_store::finish();
        }
    }
}

/// Writes the results of one row and panel of a matrix of `outputs` rows.
pub(super) fn write_panel_row(
    outputs: usize,
    row: usize,
    panel: usize,
    results: &[f32; LANES],
    (out, stores): (&DisjointSlice<'_, f32>, Stores),
) {
    let first = panel * LANES;
    let live = LANES.min(outputs - first);
    let at = row * outputs + first;
    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint columns")]
    // SAFETY: each panel belongs, for each row, to one worker, so no other worker writes these outputs.
    let out = unsafe { out.part(at..at + live) };
    match (<&mut [f32; LANES]>::try_from(&mut *out), stores) {
        // One vector store, where a slice copy would be a function call.
        (Ok(whole), Stores::Cached) => *whole = *results,
        (Ok(whole), Stores::Streamed) => streamed_store::write(whole, results),
        (Err(_), _) => out.copy_from_slice(&results[..live]),
    }
}
