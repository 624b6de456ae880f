//! Packed weight matrices of one shape and format, one after the other.

use super::{PackError, Panels, check_packed, check_size, pack_panels, panel_bytes};
use crate::memory::AlignedBytes;
use crate::packing::{LANES, PackedBytes};
use crate::{Format, Isa, Pool};

/// Weight matrices of one shape, `(rows, cols)` each, for products of different rows with different matrices
/// ([`crate::matmul_groups`]).
///
/// They share one allocation. Products do not use AMX tiles: a group of rows is often shorter than a tile, and a
/// row's result must not depend on the size of its group.
pub struct MatrixStack {
    isa: Isa,
    format: Format,
    count: usize,
    rows: usize,
    cols: usize,
    panel_bytes: usize,
    bytes: PackedBytes,
}

impl MatrixStack {
    /// A stack of `count` matrices of zeros, to be packed one by one.
    ///
    /// # Errors
    /// [`PackError::Cols`] if `cols` is not a multiple of the format's block.
    pub fn new(
        isa: Isa,
        format: Format,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Self, PackError> {
        if !cols.is_multiple_of(format.block_weights()) {
            return Err(PackError::Cols(cols));
        }
        let panel_bytes = panel_bytes(format, cols);
        let matrix_bytes = rows.div_ceil(LANES).saturating_mul(panel_bytes);
        Ok(Self {
            isa: isa.without_amx(),
            format,
            count,
            rows,
            cols,
            panel_bytes,
            bytes: PackedBytes::own(AlignedBytes::zeroed(matrix_bytes.saturating_mul(count))),
        })
    }

    /// Packs matrix `index` from GGUF bytes (row after row of blocks). `raw` is not kept.
    ///
    /// # Errors
    /// [`PackError::Size`] if `raw` is not a matrix of this shape.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn pack(&mut self, pool: &mut Pool, index: usize, raw: &[u8]) -> Result<(), PackError> {
        check_size(self.format, self.rows, self.cols, raw)?;
        let at = self.range(index);
        let shape = (self.rows, self.cols);
        pack_panels(pool, self.format, shape, raw, &mut self.bytes.to_mut()[at]);
        Ok(())
    }

    /// A stack of the bytes of a stack of this shape, packed before.
    ///
    /// # Errors
    /// As [`super::Matrix::from_packed`].
    pub fn from_packed(
        isa: Isa,
        format: Format,
        count: usize,
        (rows, cols): (usize, usize),
        bytes: PackedBytes,
    ) -> Result<Self, PackError> {
        check_packed(format, count, (rows, cols), &bytes)?;
        Ok(Self {
            isa: isa.without_amx(),
            format,
            count,
            rows,
            cols,
            panel_bytes: panel_bytes(format, cols),
            bytes,
        })
    }

    /// A handle of the packed bytes.
    pub fn packed(&self) -> PackedBytes {
        self.bytes.clone()
    }

    /// Number of matrices.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Outputs of each matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of each matrix.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The tensor format of the packed weights.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The instruction set of the matmuls.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// Panels of a matrix.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// The panels of matrix `index`.
    pub(crate) fn panels_view(&self, index: usize) -> Panels<'_> {
        Panels {
            bytes: &self.bytes[self.range(index)],
            panel_bytes: self.panel_bytes,
            rows: self.rows,
        }
    }

    /// Bytes of matrix `index`.
    fn range(&self, index: usize) -> std::ops::Range<usize> {
        assert!(index < self.count, "matrix {index} of {}", self.count);
        let bytes = self.panels() * self.panel_bytes;
        index * bytes..(index + 1) * bytes
    }
}
