//! Call types and workspace of the AMX GEMM kernels.

use super::tiles::{BLOCKS_PER_K_BLOCK, TILE_BYTES};
use crate::Activations;
use crate::memory::{LINE, ZeroedBuffer};
use crate::packing::LANES;
use std::ops::Range;

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
