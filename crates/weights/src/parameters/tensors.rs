//! The tensors that a model is loaded from, by name: who packs, and how packed matrices are kept.

use crate::LoadError;
use crate::config::LatentConfig;
use kernels::{Format, Matrix, MatrixStack};

/// How a loaded model keeps its matrices. Vectors, a thousandth of a model, are f32 everywhere.
pub trait Packing {
    /// A matrix.
    type Matrix;
    /// Matrices of one shape.
    type Stack;
    /// A table whose rows are read one by one, and which is never multiplied.
    type Table;
}

/// Matrices, however they are kept.
pub trait Stored {
    /// The tensor format of the weights.
    fn format(&self) -> Format;

    /// Bytes of the weights: of memory where they are loaded, else of what a reader gives.
    fn bytes(&self) -> usize;
}

/// A projection's matrix, however it is kept.
pub trait Projecting {
    /// Outputs and inputs.
    fn shape(&self) -> (usize, usize);
}

impl Projecting for Matrix {
    fn shape(&self) -> (usize, usize) {
        (self.rows(), self.cols())
    }
}

impl Stored for Matrix {
    fn format(&self) -> Format {
        self.format()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Stored for MatrixStack {
    fn format(&self) -> Format {
        self.format()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Stored for RowTable {
    fn format(&self) -> Format {
        self.format
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// A table whose rows are decoded one by one, and which is never multiplied: it is not packed for the kernels.
pub struct RowTable {
    /// Format of the rows.
    pub format: Format,
    /// Elements of a row.
    pub cols: usize,
    /// The rows, one after the other.
    pub bytes: Vec<u8>,
}

/// Matrices packed for the kernels of this machine.
pub enum KernelPacking {}

impl Packing for KernelPacking {
    type Matrix = Matrix;
    type Stack = MatrixStack;
    type Table = RowTable;
}

/// A matrix that a source of tensors gives.
pub type MatrixOf<T> = <<T as Tensors>::Packing as Packing>::Matrix;
/// A stack that a source of tensors gives.
pub type StackOf<T> = <<T as Tensors>::Packing as Packing>::Stack;

/// The tensors of a model being loaded. A name, a shape or a kind that does not fit is an error.
pub trait Tensors {
    /// How matrices are kept.
    type Packing: Packing;

    /// Whether there is a tensor of this name.
    fn has(&self, name: &str) -> bool;

    /// Length of a tensor's second dimension, before its shape is checked.
    fn rows_of(&self, name: &str) -> Result<usize, LoadError>;

    /// A tensor of several matrices, one after the other by rows.
    fn split<const N: usize>(
        &mut self,
        name: &str,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[MatrixOf<Self>; N], LoadError>;

    /// A tensor whose rows are in `groups`, each with as many rows of each matrix in turn, as these matrices: each of
    /// several parts, which follow each other, with these numbers of rows in all groups.
    fn interleaved<const N: usize>(
        &mut self,
        name: &str,
        groups: usize,
        matrices: [&[usize]; N],
        cols: usize,
    ) -> Result<[MatrixOf<Self>; N], LoadError>;

    /// A matrix of floats in f32, for products whose order of sums does not depend on the instruction set.
    fn float_matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<MatrixOf<Self>, LoadError>;

    /// A tensor of `count` matrices, each of which has parts of these numbers of rows, as one stack for each part.
    fn stacks<const N: usize>(
        &mut self,
        name: &str,
        count: usize,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[StackOf<Self>; N], LoadError>;

    /// A tensor for each of `count` matrices, all of one format, as a stack.
    fn stack_of(
        &mut self,
        name_of: impl Fn(usize) -> String,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<StackOf<Self>, LoadError>;

    /// Key and value projections of `heads` heads that are one tensor: of each head the rows of the keys, which become
    /// columns, then those of the values.
    fn joined_heads(
        &mut self,
        name: &str,
        heads: usize,
        sizes: &LatentConfig,
    ) -> Result<(StackOf<Self>, StackOf<Self>), LoadError>;

    /// A table whose rows are read one by one.
    fn row_table(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<<Self::Packing as Packing>::Table, LoadError>;

    /// The numbers of a tensor of this shape, `dims[0]` the length of a row.
    fn numbers(&mut self, name: &str, dims: &[u64]) -> Result<Vec<f32>, LoadError>;

    /// A number for each head, as a vector or as a table of one column.
    fn per_head(&mut self, name: &str, heads: usize) -> Result<Vec<f32>, LoadError>;

    /// Counts a tensor that no result depends on as used, if there is one.
    fn ignore(&mut self, name: &str);

    /// Counts the tensors whose names begin with `prefix` as used: those of a layer or of an encoder that is not run.
    fn ignore_prefix(&mut self, prefix: &str);

    /// Rejects unused tensors.
    fn finish_all(&mut self) -> Result<(), LoadError>;

    /// A matrix of `rows` outputs and `cols` inputs.
    fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<MatrixOf<Self>, LoadError> {
        let [matrix] = self.split(name, [rows], cols)?;
        Ok(matrix)
    }

    /// A norm, bias or table of `len` numbers.
    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        self.numbers(name, &[len as u64])
    }

    /// A table of `rows` times `cols` numbers.
    fn table(&mut self, name: &str, rows: usize, cols: usize) -> Result<Vec<f32>, LoadError> {
        self.numbers(name, &[cols as u64, rows as u64])
    }

    /// Like [`Self::vector`], for an optional tensor.
    fn vector_if_there(&mut self, name: &str, len: usize) -> Result<Option<Vec<f32>>, LoadError> {
        self.has(name).then(|| self.vector(name, len)).transpose()
    }
}
