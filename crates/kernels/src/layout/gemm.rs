//! Kernels of a matmul on vectors, and what those for many rows work in.

use crate::Activations;
use crate::packing::LANES;
use std::ops::Range;

/// Rows of activations that one kernel call takes.
pub(crate) const KERNEL_ROWS: usize = 8;
/// Rows that one kernel call takes at most.
pub(crate) const ROWS_MAX: usize = 128;
/// Bytes of weights taken apart at a time: the innermost cache holds them while rows pass by.
pub(crate) const READY_BYTES: usize = 25 << 10;

/// Multiplies a panel with rows `row..row + out.len()` of the activations, at most [`KERNEL_ROWS`].
///
/// # Safety
/// The processor has the level that the kernel was chosen for.
pub(crate) type Kernel =
    unsafe fn(panel: &[u8], x: &Activations, row: usize, out: &mut [[f32; LANES]]);

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

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            ready: [0; READY_BYTES],
            sums: [[0.0; 4 * LANES]; ROWS_MAX],
        }
    }
}
