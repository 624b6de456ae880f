//! Matrices as descriptions: where their rows are in the files, and no bytes.
//!
//! A description has everything that a program for another machine is made from, at no cost in memory: whether a model fits
//! is known before a byte of a matrix is read. A [`DescribedReader`](super::DescribedReader) gives the bytes.

use super::Weights;
use super::described_tensors::DescribedTensors;
use super::tensors::{Packing, Projecting, Stored};
use crate::{Config, LoadError, ModelFiles};
use kernels::{Format, Pool};
use std::sync::Arc;

/// Matrices, stacks and tables as descriptions.
pub enum Described {}

impl Packing for Described {
    type Matrix = DescribedMatrix;
    type Stack = DescribedMatrix;
    type Table = DescribedMatrix;
}

impl Weights<Described> {
    /// Checks all tensors as [`Weights::load`] does, and reads the vectors alone. `pool` converts those of safetensors.
    ///
    /// # Errors
    /// Those of [`Weights::load`], except that weights of safetensors which are to be quantized are found not to be finite only
    /// when they are read.
    pub fn describe(
        files: &ModelFiles,
        config: &Config,
        pool: &mut Pool,
    ) -> Result<Self, LoadError> {
        Self::read(&mut DescribedTensors::new(files, pool), config)
    }
}

/// Matrices of one shape, `(rows, cols)` each, or a table: a count, a shape, a format, and the places of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMatrix {
    /// Format of the bytes that a reader gives.
    pub format: Format,
    /// Number of matrices; 1 for a matrix or a table.
    pub count: usize,
    /// Outputs of each matrix.
    pub rows: usize,
    /// Inputs of each matrix.
    pub cols: usize,
    /// The rows of all matrices, in order.
    pub sources: Vec<TensorRows>,
    /// Change of the stored rows.
    pub(super) change: RowChange,
    /// The bytes, of a matrix that is in no tensor of the model's files.
    pub(super) at_hand: Option<Arc<[u8]>>,
}

/// Rows of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRows {
    /// Name of the tensor.
    pub tensor: String,
    /// The rows, in order.
    pub runs: Vec<RowRun>,
}

/// Rows at equal distances: `rows` from `first` on, and again from `every` rows later on, `count` times in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRun {
    /// The first row, among all rows of the tensor.
    pub first: usize,
    /// Consecutive rows.
    pub rows: usize,
    /// Distance between the beginnings of consecutive rows.
    pub every: usize,
    /// How many times.
    pub count: usize,
}

/// What becomes of stored rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowChange {
    /// Nothing.
    None,
    /// Floats of any width become f32.
    Floats,
    /// The rows of each run are the columns of a matrix, in f32.
    Columns,
}

impl DescribedMatrix {
    /// Matrices of these floats, which are in no tensor of the model's files.
    pub(super) fn of_floats((count, rows, cols): (usize, usize, usize), floats: &[f32]) -> Self {
        let bytes = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self {
            format: Format::F32,
            count,
            rows,
            cols,
            sources: Vec::new(),
            change: RowChange::None,
            at_hand: Some(bytes),
        }
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.cols / self.format.block_weights() * self.format.block_bytes()
    }

    /// Rows of all matrices.
    pub fn all_rows(&self) -> usize {
        self.count * self.rows
    }
}

impl Stored for DescribedMatrix {
    fn format(&self) -> Format {
        self.format
    }

    fn bytes(&self) -> usize {
        self.all_rows().saturating_mul(self.row_bytes())
    }
}

impl Projecting for DescribedMatrix {
    fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }
}

impl RowRun {
    /// All rows of a tensor.
    pub(super) fn whole(rows: usize) -> Self {
        Self::range(0, rows)
    }

    /// Consecutive rows.
    pub(super) fn range(first: usize, rows: usize) -> Self {
        Self {
            first,
            rows,
            every: rows,
            count: 1,
        }
    }
}
