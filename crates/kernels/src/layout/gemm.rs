//! Kernels of a matmul on vectors, and what those for many rows work in.

use crate::Activations;
use crate::packing::LANES;
use std::ops::Range;

/// Rows of activations that one kernel call takes.
pub(crate) const GEMV_ROWS: usize = 8;
/// Rows that one kernel call takes at most.
pub(crate) const GEMM_ROWS_MAX: usize = 128;
/// Bytes of weights taken apart at a time: the innermost cache holds them while rows pass by.
pub(crate) const UNPACKED_BYTES: usize = 25 << 10;

/// Multiplies a panel with rows `row..row + out.len()` of the activations, at most [`GEMV_ROWS`].
///
/// # Safety
/// The processor has the level that the kernel was chosen for.
pub(crate) type GemvKernel =
    unsafe fn(panel: &[u8], x: &Activations, row: usize, out: &mut [[f32; LANES]]);

/// Multiplies one or two panels (which one is fixed by the kernel) with rows of the activations, at
/// most [`GEMM_ROWS_MAX`]. Of each row's sums in the workspace, the first 16 are the first panel's, the next the
/// second's.
///
/// # Safety
/// The processor has the level that the kernel was chosen for.
pub(crate) type GemmKernel =
    unsafe fn(panels: &[u8], x: &Activations, rows: Range<usize>, &mut GemmWorkspace);

/// What a worker works on, on its stack.
#[repr(C, align(64))]
pub(crate) struct GemmWorkspace {
    /// Weights taken apart.
    pub(crate) unpacked: [u8; UNPACKED_BYTES],
    /// Two sums for each row of the panels.
    pub(crate) sums: [[f32; 4 * LANES]; GEMM_ROWS_MAX],
}

impl GemmWorkspace {
    pub(crate) fn new() -> Self {
        Self {
            unpacked: [0; UNPACKED_BYTES],
            sums: [[0.0; 4 * LANES]; GEMM_ROWS_MAX],
        }
    }
}
