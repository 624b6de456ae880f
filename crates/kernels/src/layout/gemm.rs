//! Call types of the vector kernels of a matmul, and the workspace of the GEMM kernels.

use crate::Activations;
use crate::packing::LANES;
use std::ops::Range;

/// Rows of activations per GEMV kernel call.
pub(crate) const GEMV_ROWS: usize = 8;
/// Most rows of activations per GEMM kernel call.
pub(crate) const GEMM_ROWS_MAX: usize = 128;
/// Bytes of unpacked weights (one K-block): fits the L1 cache while rows are multiplied.
pub(crate) const UNPACKED_BYTES: usize = 25 << 10;

/// Multiplies a panel with rows `row..row + out.len()` of the activations, at most [`GEMV_ROWS`].
///
/// # Safety
/// The processor has the level that the kernel was chosen for.
pub(crate) type GemvKernel =
    unsafe fn(panel: &[u8], x: &Activations, row: usize, out: &mut [[f32; LANES]]);

/// Multiplies one or two panels (the number is fixed by the kernel) with at most [`GEMM_ROWS_MAX`] rows of the
/// activations. Of each row's sums in the workspace, the first 16 belong to the first panel, the next 16 to the
/// second.
///
/// # Safety
/// The processor has the level that the kernel was chosen for.
pub(crate) type GemmKernel =
    unsafe fn(panels: &[u8], x: &Activations, rows: Range<usize>, &mut GemmWorkspace);

/// The GEMM kernels of a tensor format on a level, and when to call them.
#[derive(Clone, Copy)]
pub(crate) struct GemmKernels {
    /// For one panel and for two.
    pub(crate) kernels: [GemmKernel; 2],
    /// Rows of activations from which GEMM is faster than GEMV.
    pub(crate) rows_min: usize,
    /// Bytes of activations per kernel call: the L2 cache of a core holds them while the panels of a group are
    /// multiplied.
    pub(crate) rows_bytes: usize,
}

/// Workspace of a worker, on the stack.
#[repr(C, align(64))]
pub(crate) struct GemmWorkspace {
    /// One K-block of unpacked weights.
    pub(crate) unpacked: [u8; UNPACKED_BYTES],
    /// Two sums per row of the panels, for each row of activations.
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
