//! Kernels of a matmul on tiles, and what they work in.

use super::tile_sizes::{BLOCKS_PER_K_BLOCK, TILE_BYTES};
use crate::Activations;
use crate::memory::{LINE, ZeroedBuffer};
use crate::packing::LANES;
use std::ops::Range;

/// Tiles of rows that are taken at a time.
pub(crate) const ROW_TILES_MAX: usize = 32;
/// Pairs of panels in a group, at most.
pub(crate) const PAIRS_MAX: usize = 8;
/// Bytes of two panels' chunk: what is in int8 needs half of it for its tiles.
pub(crate) const B_BUFFER_BYTES: usize = 2 * BLOCKS_PER_K_BLOCK * TILE_BYTES;
/// Bytes of the sums of a pair of panels.
pub(crate) const PAIR_BYTES: usize = 2 * ROW_TILES_MAX * TILE_BYTES;

/// Multiplies one or two panels (which one is fixed by the kernel) with rows of the activations.
///
/// # Safety
/// The processor has the level that the kernel was chosen for, and the thread its tiles. The job's
/// blocks and tiles are among those of the activations, its tiles and its pair among the workspace's.
pub(crate) type AmxKernel =
    unsafe fn(panels: &[u8], x: &Activations, job: &TileJob, workspace: &mut AmxWorkspace);

/// What one kernel call is to do.
pub(crate) struct TileJob {
    /// Blocks of 32 columns.
    pub(crate) blocks: Range<usize>,
    /// Tiles of rows.
    pub(crate) tiles: Range<usize>,
    /// Which of the group's pairs of panels this is.
    pub(crate) pair: usize,
    /// The pair's panels: one or two.
    pub(crate) panels: usize,
}

/// What a worker works on: made when a thread first comes here, and kept.
pub(crate) struct AmxWorkspace {
    /// Two chunks and the sums of a group.
    bytes: ZeroedBuffer<f32>,
}

impl AmxWorkspace {
    pub(crate) fn new() -> Self {
        let bytes = 2 * B_BUFFER_BYTES + PAIRS_MAX * PAIR_BYTES;
        Self {
            bytes: ZeroedBuffer::new(bytes / size_of::<f32>()),
        }
    }

    /// Room for two chunks.
    pub(crate) fn b_buffers(&mut self) -> [*mut u8; 2] {
        let start = self.bytes.as_mut_ptr().cast::<u8>();
        [start, start.wrapping_add(B_BUFFER_BYTES)]
    }

    /// The sums of a tile of the job's rows: (panels, 16 rows, 16 columns), the next tile's behind.
    pub(crate) fn accumulators(&mut self, job: &TileJob, tile: usize) -> *mut f32 {
        let tile = (tile - job.tiles.start) * job.panels;
        let at = 2 * B_BUFFER_BYTES + job.pair * PAIR_BYTES + tile * TILE_BYTES;
        self.bytes[at / size_of::<f32>()..].as_mut_ptr()
    }

    /// The lines of sums from the first pair's line `line` on.
    pub(crate) fn accumulator_lines(&self, line: usize) -> &[f32] {
        &self.bytes[(2 * B_BUFFER_BYTES + line * LINE) / size_of::<f32>()..]
    }

    /// A line of a pair's sums.
    pub(crate) fn accumulator_line(&self, pair: usize, line: usize) -> &[f32; LANES] {
        let at = 2 * B_BUFFER_BYTES + pair * PAIR_BYTES + line * LINE;
        let (lines, _) = self.bytes[at / size_of::<f32>()..].as_chunks();
        &lines[0]
    }
}
