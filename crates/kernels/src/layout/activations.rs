//! Rows of activations in the forms that matmuls read.

use super::activation_block::ActBlock;
use super::int8_tile::{CodeLine, TILE_BLOCKS};
use super::tile_sizes::{CHUNK_BLOCKS, ROWS_MIN, TILE_ROWS, takes_codes};
use crate::Format;
use crate::memory::{LINE, ZeroedBuffer};
use crate::packing::BLOCK;

/// Blocks a row is padded to a multiple of: a tile of weights is never narrower.
const ROW_BLOCKS: usize = 2;
/// Blocks of nothing after each row, so that rows do not all fall on the same cache sets.
pub(crate) const STAGGER: usize = 1;
/// Up to `rows_max` rows, prepared once and read by every projection that takes the same input:
/// as f32, and as int8 with a scale and sums per 32 columns; or, many rows for tiles, as bf16 and as int8
/// with a scale per 256 columns, whichever the weights take.
///
/// The int8 form is symmetric: `scale = max |x| / 127` (its last two bits cleared), codes rounded to
/// nearest, ties to even. A block that holds a NaN, an infinity or a magnitude beyond [`LARGEST`]
/// makes every product of its row NaN.
pub struct Activations {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Blocks from one row to the next; nothing of `blocks` where `tiled`.
    pub(crate) stride: usize,
    /// Whether the rows are in tiles.
    pub(crate) tiled: bool,
    /// What rows in tiles are kept as.
    pub(crate) forms: Forms,
    /// `(rows_max, stride)`; where `tiled`, lines of 32 bf16: `(row tiles, blocks, 16 rows)`.
    pub(crate) blocks: ZeroedBuffer<ActBlock>,
    /// `(rows_max, stride, 32)`
    pub(crate) floats: ZeroedBuffer<f32>,
    /// Where `tiled`: `(row tiles, blocks / 2, 16 rows)`.
    pub(crate) codes: ZeroedBuffer<CodeLine>,
    /// What they stand for: `(row tiles, blocks / 8, 16 rows)`.
    pub(crate) scales: ZeroedBuffer<f32>,
}

/// In which forms rows in tiles are needed.
#[derive(Clone, Copy)]
pub(crate) struct Forms {
    pub(crate) floats: bool,
    pub(crate) halves: bool,
    pub(crate) codes: bool,
}

impl Activations {
    /// Room for `(rows_max, cols_max)`; the only allocation.
    pub fn new(rows_max: usize, cols_max: usize) -> Self {
        Self {
            rows: 0,
            cols: 0,
            stride: 0,
            tiled: false,
            forms: Forms {
                floats: true,
                halves: true,
                codes: true,
            },
            blocks: ZeroedBuffer::new(rows_room(rows_max) * stride(cols_max)),
            floats: ZeroedBuffer::new(rows_max * stride(cols_max) * BLOCK),
            codes: ZeroedBuffer::new(Self::code_lines(tile_room(rows_max), stride(cols_max))),
            scales: ZeroedBuffer::new(Self::code_scales(tile_room(rows_max), stride(cols_max))),
        }
    }

    /// From now on rows in tiles are kept only in the forms that weights of these formats take.
    pub fn for_weights(mut self, formats: impl IntoIterator<Item = Format>) -> Self {
        self.forms = Forms {
            floats: false,
            halves: false,
            codes: false,
        };
        for format in formats {
            match format {
                Format::F32 => self.forms.floats = true,
                _ if takes_codes(format) => self.forms.codes = true,
                _ => self.forms.halves = true,
            }
        }
        self
    }

    /// Bytes of room for `(rows_max, cols_max)`: 7 for each column, and a little for each row.
    pub const fn bytes(rows_max: usize, cols_max: usize) -> usize {
        let stride = stride(cols_max);
        let blocks = rows_room(rows_max) * stride * size_of::<ActBlock>();
        let floats = rows_max * stride * BLOCK * size_of::<f32>();
        let codes = Self::code_lines(tile_room(rows_max), stride) * size_of::<CodeLine>();
        let scales = Self::code_scales(tile_room(rows_max), stride) * size_of::<f32>();
        blocks + floats + codes + scales
    }

    /// Rows loaded.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns loaded.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes that a product reads of a row of blocks, at least one.
    pub(crate) fn row_bytes(&self) -> usize {
        self.stride * size_of::<ActBlock>()
    }

    /// Whether rows are in tiles: then there are no [`Activations::blocks`].
    pub(crate) fn tiled(&self) -> bool {
        self.tiled
    }

    /// Whether there are [`Activations::floats`].
    pub(crate) fn has_floats(&self) -> bool {
        !self.tiled || self.forms.floats
    }

    /// A row's blocks, an even number of them.
    ///
    /// # Panics
    /// Where rows are tiled (debug builds).
    #[inline(always)]
    pub(crate) fn blocks(&self, row: usize) -> &[ActBlock] {
        debug_assert!(!self.tiled, "rows are in tiles");
        &self.blocks[row * self.stride..][..self.stride - STAGGER]
    }

    /// A row as f32, padded with zeros to whole blocks.
    #[inline(always)]
    pub(crate) fn floats(&self, row: usize) -> &[f32] {
        &self.floats[row * self.stride * BLOCK..][..(self.stride - STAGGER) * BLOCK]
    }

    /// Lines of codes for `rows` rows of `stride` blocks.
    const fn code_lines(rows: usize, stride: usize) -> usize {
        rows * stride.div_ceil(TILE_BLOCKS)
    }

    /// Scales of as many codes.
    const fn code_scales(rows: usize, stride: usize) -> usize {
        rows * stride.div_ceil(CHUNK_BLOCKS)
    }

    pub(crate) fn code_chunks(&self) -> usize {
        self.tile_blocks().div_ceil(CHUNK_BLOCKS)
    }

    /// Bytes from a tile of codes to that of the next sixteen rows.
    pub(crate) fn code_row_bytes(&self) -> usize {
        self.tile_blocks() / TILE_BLOCKS * TILE_ROWS * LINE
    }

    /// The tile of codes of two blocks of 32 columns and sixteen rows.
    ///
    /// # Panics
    /// If rows are not tiled as codes, or there is no such tile.
    #[inline(always)]
    pub(crate) fn code_tile(&self, tile: usize, block: usize) -> *const u8 {
        let tiles = self.tile_blocks() / TILE_BLOCKS;
        let at = block / TILE_BLOCKS;
        assert!(self.tiled && self.forms.codes && at < tiles && tile * TILE_ROWS < self.rows);
        self.codes[(tile * tiles + at) * TILE_ROWS..]
            .as_ptr()
            .cast()
    }

    /// The scales of sixteen rows in the chunk that begins with this block.
    ///
    /// # Panics
    /// If there is no such chunk.
    #[inline(always)]
    pub(crate) fn code_tile_scales(&self, tile: usize, block: usize) -> &[f32; TILE_ROWS] {
        let at = tile * self.code_chunks() + block / CHUNK_BLOCKS;
        &self.scales.as_chunks().0[at]
    }

    /// Blocks of 32 columns in a row of tiles.
    pub(crate) fn tile_blocks(&self) -> usize {
        self.stride - STAGGER
    }

    /// Bytes from a tile to that of the next sixteen rows.
    pub(crate) fn tile_row_bytes(&self) -> usize {
        self.tile_blocks() * TILE_ROWS * size_of::<ActBlock>()
    }

    /// The tile of a block of 32 columns and sixteen rows.
    ///
    /// # Panics
    /// If rows are not tiled, or there is no such tile.
    #[inline(always)]
    pub(crate) fn tile(&self, tile: usize, block: usize) -> *const u8 {
        assert!(
            self.tiled
                && self.forms.halves
                && block < self.tile_blocks()
                && tile * TILE_ROWS < self.rows
        );
        let line = (tile * self.tile_blocks() + block) * TILE_ROWS;
        self.blocks[line..].as_ptr().cast()
    }
}

/// Rows that there is room for: whole tiles of them, where there may be tiles at all.
const fn rows_room(rows: usize) -> usize {
    if rows < ROWS_MIN {
        rows
    } else {
        rows.next_multiple_of(TILE_ROWS)
    }
}

/// The same of rows in tiles, of which fewer are never.
const fn tile_room(rows: usize) -> usize {
    if rows < ROWS_MIN { 0 } else { rows_room(rows) }
}

/// Blocks from one row of `cols` to the next.
pub(crate) const fn stride(cols: usize) -> usize {
    cols.div_ceil(BLOCK).next_multiple_of(ROW_BLOCKS) + STAGGER
}
