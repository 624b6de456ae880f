//! Call types of the vector kernels and of the AMX kernels of a matmul, and the workspaces of the GEMM kernels.

use super::tiles::{BLOCKS_PER_K_BLOCK, TILE_BYTES};
use crate::Activations;
use crate::memory::{LINE, ZeroedBuffer};
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

/// Tiles of rows of activations per kernel call.
pub(crate) const ROW_TILES_MAX: usize = 32;
/// Most pairs of panels in a group.
pub(crate) const PAIRS_MAX: usize = 8;
/// Bytes of a B buffer: the dequantized K-block of two panels. Int8 tiles fill half of the buffer.
pub(crate) const B_BUFFER_BYTES: usize = 2 * BLOCKS_PER_K_BLOCK * TILE_BYTES;
/// Bytes of the accumulators of a pair of panels.
pub(crate) const PAIR_BYTES: usize = 2 * ROW_TILES_MAX * TILE_BYTES;

/// Multiplies one or two panels (the number is fixed by the kernel) with rows of the activations.
///
/// # Safety
/// The processor has the level that the kernel was chosen for, and the thread its AMX tiles. The job's blocks
/// and tiles are in range of the activations, the job's tiles and pair in range of the workspace.
pub(crate) type AmxKernel =
    unsafe fn(panels: &[u8], x: &Activations, job: &TileJob, workspace: &mut AmxWorkspace);

/// The part of a GEMM that one kernel call computes.
pub(crate) struct TileJob {
    /// Blocks of 32 columns.
    pub(crate) blocks: Range<usize>,
    /// Tiles of rows of activations.
    pub(crate) tiles: Range<usize>,
    /// Index of the pair of panels in the group.
    pub(crate) pair: usize,
    /// Panels of the pair: one or two.
    pub(crate) panels: usize,
}

/// Workspace of a worker: allocated once per thread and kept.
pub(crate) struct AmxWorkspace {
    /// Two B buffers, then the accumulators of a group.
    bytes: ZeroedBuffer<f32>,
}

impl AmxWorkspace {
    pub(crate) fn new() -> Self {
        let bytes = 2 * B_BUFFER_BYTES + PAIRS_MAX * PAIR_BYTES;
        Self {
            bytes: ZeroedBuffer::new(bytes / size_of::<f32>()),
        }
    }

    /// The two B buffers for double buffering.
    pub(crate) fn b_buffers(&mut self) -> [*mut u8; 2] {
        let start = self.bytes.base_ptr().cast::<u8>();
        [start, start.wrapping_add(B_BUFFER_BYTES)]
    }

    /// The accumulators of a row tile of the job: (panels, 16 rows, 16 columns), followed by the next row tile.
    pub(crate) fn accumulators(&mut self, job: &TileJob, tile: usize) -> *mut f32 {
        let tile = (tile - job.tiles.start) * job.panels;
        let at = 2 * B_BUFFER_BYTES + job.pair * PAIR_BYTES + tile * TILE_BYTES;
        assert!(at + job.panels * TILE_BYTES <= self.bytes.len() * size_of::<f32>());
        // Not a slice: borrowing the buffer would invalidate the pointers to the B buffers.
        self.bytes.base_ptr().wrapping_add(at / size_of::<f32>())
    }

    /// Accumulators from line `line` of the first pair on; a line is one row of 16 columns.
    pub(crate) fn accumulator_lines(&self, line: usize) -> &[f32] {
        &self.bytes[(2 * B_BUFFER_BYTES + line * LINE) / size_of::<f32>()..]
    }

    /// One row of 16 accumulators of a pair.
    pub(crate) fn accumulator_line(&self, pair: usize, line: usize) -> &[f32; LANES] {
        let at = 2 * B_BUFFER_BYTES + pair * PAIR_BYTES + line * LINE;
        let (lines, _) = self.bytes[at / size_of::<f32>()..].as_chunks();
        &lines[0]
    }
}
