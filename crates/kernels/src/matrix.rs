//! Packed weights. (Stub.)

use crate::{Format, Isa, Pool};

/// Why weights could not be packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackError {
    /// `raw` does not have `rows * cols` weights of this format.
    Size {
        /// Bytes needed.
        wanted: usize,
        /// Bytes given.
        given: usize,
    },
    /// `cols` is not a multiple of the format's block.
    Cols(usize),
}

impl std::fmt::Display for PackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Size { wanted, given } => write!(f, "needs {wanted} bytes, has {given}"),
            Self::Cols(cols) => write!(f, "{cols} columns are no whole number of blocks"),
        }
    }
}

impl std::error::Error for PackError {}

/// A weight matrix, `(rows, cols)` = (outputs, inputs), in the layout the kernels want.
pub struct Matrix {
    rows: usize,
    cols: usize,
}

impl Matrix {
    /// Packs GGUF bytes (row after row of blocks). `raw` is not kept.
    pub fn pack(
        _isa: Isa,
        _pool: &mut Pool,
        _format: Format,
        _rows: usize,
        _cols: usize,
        _raw: &[u8],
    ) -> Result<Self, PackError> {
        todo!()
    }
    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        todo!()
    }
    /// Writes row `row` as f32 (embedding look-up from the same packed copy).
    pub fn row(&self, _row: usize, _out: &mut [f32]) {
        todo!()
    }
}
