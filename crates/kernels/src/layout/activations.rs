//! Rows of activations in the forms that matmul kernels read.

use super::activation_block::ActivationBlock;
use super::tiles::{AMX_ROWS_MIN, BLOCKS_PER_K_BLOCK, Int8Line, TILE_BLOCKS, TILE_ROWS, fits_int8};
use crate::Format;
use crate::memory::{LINE, ZeroedBuffer};
use crate::packing::BLOCK;
use std::ops::Range;

/// Rows are padded to a multiple of this many blocks, the narrowest tile of weights.
const ROW_BLOCKS: usize = 2;
/// Padding blocks after each row, so that rows do not all map to the same cache sets.
pub(crate) const PADDING_BLOCKS: usize = 1;
/// Up to `rows_max` rows, quantized once and read by every projection with the same input: as f32 and as int8
/// with a scale and sums per 32 columns; or, for AMX kernels, as bf16 tiles and as int8 tiles with a scale per
/// 256 columns, whichever the weights need.
///
/// The int8 quantization is symmetric: `scale = max |x| / 127` (the last two bits cleared), quants rounded to
/// nearest, ties to even. A block with a NaN, an infinity or a magnitude above
/// `MAX_ABS_MAX` makes every product of its row NaN.
pub struct Activations {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Blocks from one row to the next; not used by `blocks` where `tiled`.
    pub(crate) stride: usize,
    /// Whether the rows are stored as AMX tiles.
    pub(crate) tiled: bool,
    /// Forms that are stored for rows in tiles.
    pub(crate) tile_forms: TileForms,
    /// `(rows_max, stride)`; where `tiled`, lines of 32 bf16: `(row tiles, blocks, 16 rows)`.
    pub(crate) blocks: ZeroedBuffer<ActivationBlock>,
    /// `(rows_max, stride, 32)`
    pub(crate) floats: ZeroedBuffer<f32>,
    /// Quants of int8 tiles, `(row tiles, blocks / 2, 16 rows)`.
    pub(crate) int8_lines: ZeroedBuffer<Int8Line>,
    /// Scales of int8 tiles, `(row tiles, blocks / 8, 16 rows)`.
    pub(crate) int8_scales: ZeroedBuffer<f32>,
}

/// Forms of rows in tiles.
#[derive(Clone, Copy)]
pub(crate) struct TileForms {
    pub(crate) f32: bool,
    pub(crate) bf16: bool,
    pub(crate) int8: bool,
}

impl Activations {
    /// Allocates buffers for `(rows_max, cols_max)`; later loads allocate nothing.
    pub fn new(rows_max: usize, cols_max: usize) -> Self {
        Self {
            rows: 0,
            cols: 0,
            stride: 0,
            tiled: false,
            tile_forms: TileForms {
                f32: true,
                bf16: true,
                int8: true,
            },
            blocks: ZeroedBuffer::new(padded_rows(rows_max) * row_stride(cols_max)),
            floats: ZeroedBuffer::new(rows_max * row_stride(cols_max) * BLOCK),
            int8_lines: ZeroedBuffer::new(Self::int8_lines(
                tile_rows(rows_max),
                row_stride(cols_max),
            )),
            int8_scales: ZeroedBuffer::new(Self::int8_scales(
                tile_rows(rows_max),
                row_stride(cols_max),
            )),
        }
    }

    /// Restricts rows in tiles to the forms that weights of these formats need. Rows that were loaded before are
    /// forgotten: their tiles may have other forms.
    pub fn for_weights(mut self, formats: impl IntoIterator<Item = Format>) -> Self {
        (self.rows, self.tiled) = (0, false);
        self.tile_forms = TileForms {
            f32: false,
            bf16: false,
            int8: false,
        };
        for format in formats {
            match format {
                Format::F32 => self.tile_forms.f32 = true,
                _ if fits_int8(format) => self.tile_forms.int8 = true,
                _ => self.tile_forms.bf16 = true,
            }
        }
        self
    }

    /// Bytes of the buffers for `(rows_max, cols_max)`: 7 for each column, plus a constant for each row.
    pub const fn bytes(rows_max: usize, cols_max: usize) -> usize {
        let stride = row_stride(cols_max);
        let blocks = padded_rows(rows_max) * stride * size_of::<ActivationBlock>();
        let floats = rows_max * stride * BLOCK * size_of::<f32>();
        let codes = Self::int8_lines(tile_rows(rows_max), stride) * size_of::<Int8Line>();
        let scales = Self::int8_scales(tile_rows(rows_max), stride) * size_of::<f32>();
        blocks + floats + codes + scales
    }

    /// Rows of the last load.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the last load.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of a row of blocks, at least one.
    pub(crate) fn row_bytes(&self) -> usize {
        self.stride * size_of::<ActivationBlock>()
    }

    /// Whether rows are stored as AMX tiles; [`Activations::blocks`] is not available then.
    pub(crate) fn is_tiled(&self) -> bool {
        self.tiled
    }

    /// Whether [`Activations::floats`] is available.
    pub(crate) fn has_floats(&self) -> bool {
        !self.tiled || self.tile_forms.f32
    }

    /// The blocks of a row, an even number.
    ///
    /// # Panics
    /// If rows are in tiles (debug builds).
    #[inline(always)]
    pub(crate) fn blocks(&self, row: usize) -> &[ActivationBlock] {
        debug_assert!(!self.tiled, "rows are in tiles");
        &self.blocks[row * self.stride..][..self.stride - PADDING_BLOCKS]
    }

    /// A row as f32, padded with zeros to whole blocks.
    #[inline(always)]
    pub(crate) fn floats(&self, row: usize) -> &[f32] {
        &self.floats[row * self.stride * BLOCK..][..(self.stride - PADDING_BLOCKS) * BLOCK]
    }

    /// Cache lines of int8 quants of `rows` rows of `stride` blocks.
    const fn int8_lines(rows: usize, stride: usize) -> usize {
        rows * stride.div_ceil(TILE_BLOCKS)
    }

    /// Scales of the int8 tiles of `rows` rows of `stride` blocks.
    const fn int8_scales(rows: usize, stride: usize) -> usize {
        rows * stride.div_ceil(BLOCKS_PER_K_BLOCK)
    }

    pub(crate) fn k_blocks(&self) -> usize {
        self.tile_blocks().div_ceil(BLOCKS_PER_K_BLOCK)
    }

    /// Bytes from an int8 tile to the tile of the next sixteen rows.
    pub(crate) fn int8_tile_row_bytes(&self) -> usize {
        self.tile_blocks() / TILE_BLOCKS * TILE_ROWS * LINE
    }

    /// The first int8 tile (sixteen rows of two blocks of 32 columns) of these row tiles and blocks; all of them are
    /// within the buffer.
    ///
    /// # Panics
    /// If rows are not stored as int8 tiles, or one of the tiles is out of range.
    #[inline(always)]
    pub(crate) fn int8_tiles(&self, row_tiles: Range<usize>, blocks: Range<usize>) -> *const u8 {
        let tiles = self.tile_blocks() / TILE_BLOCKS;
        assert!(self.tile_forms.int8 && blocks.end <= tiles * TILE_BLOCKS);
        self.assert_row_tiles(&row_tiles);
        let line = |row_tile, tile| (row_tile * tiles + tile) * TILE_ROWS;
        let first = line(row_tiles.start, blocks.start / TILE_BLOCKS);
        self.int8_lines[first..line(row_tiles.end, 0)]
            .as_ptr()
            .cast()
    }

    /// The scales of sixteen rows in the K-block that begins with `block`.
    ///
    /// # Panics
    /// If the K-block is out of range.
    #[inline(always)]
    pub(crate) fn int8_tile_scales(&self, tile: usize, block: usize) -> &[f32; TILE_ROWS] {
        let at = tile * self.k_blocks() + block / BLOCKS_PER_K_BLOCK;
        &self.int8_scales.as_chunks().0[at]
    }

    /// Blocks of 32 columns in a row of tiles.
    pub(crate) fn tile_blocks(&self) -> usize {
        self.stride - PADDING_BLOCKS
    }

    /// Bytes from a bf16 tile to the tile of the next sixteen rows.
    pub(crate) fn bf16_tile_row_bytes(&self) -> usize {
        self.tile_blocks() * TILE_ROWS * size_of::<ActivationBlock>()
    }

    /// The first bf16 tile (sixteen rows of one block of 32 columns) of these row tiles and blocks; all of them are
    /// within the buffer.
    ///
    /// # Panics
    /// If rows are not stored as bf16 tiles, or one of the tiles is out of range.
    #[inline(always)]
    pub(crate) fn bf16_tiles(&self, row_tiles: Range<usize>, blocks: Range<usize>) -> *const u8 {
        let tiles = self.tile_blocks();
        assert!(self.tile_forms.bf16 && blocks.end <= tiles);
        self.assert_row_tiles(&row_tiles);
        let line = |row_tile, block| (row_tile * tiles + block) * TILE_ROWS;
        let first = line(row_tiles.start, blocks.start);
        self.blocks[first..line(row_tiles.end, 0)].as_ptr().cast()
    }

    /// Panics unless rows are stored as tiles and each of these row tiles has a loaded row.
    #[inline(always)]
    fn assert_row_tiles(&self, row_tiles: &Range<usize>) {
        assert!(self.tiled && !row_tiles.is_empty());
        assert!((row_tiles.end - 1) * TILE_ROWS < self.rows, "rows in tiles");
    }
}

/// Rows of the buffers: whole tiles, where tiles are possible.
const fn padded_rows(rows: usize) -> usize {
    if rows < AMX_ROWS_MIN {
        rows
    } else {
        rows.next_multiple_of(TILE_ROWS)
    }
}

/// Rows of the tile buffers: zero where there are too few rows for AMX.
const fn tile_rows(rows: usize) -> usize {
    if rows < AMX_ROWS_MIN {
        0
    } else {
        padded_rows(rows)
    }
}

/// Blocks from one row of `cols` columns to the next.
pub(crate) const fn row_stride(cols: usize) -> usize {
    cols.div_ceil(BLOCK).next_multiple_of(ROW_BLOCKS) + PADDING_BLOCKS
}
