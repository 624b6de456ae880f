//! Packed matrices of an earlier load.
//!
//! A section is used only if tensor, part, format and shape are those that the load asks for; everything that a load checks
//! of a tensor's shape and kind is checked here, too. A missing or damaged section is no error: the caller packs.

use super::packed_tensors::PackedTensors;
use crate::LoadError;
use crate::packed_file::SectionShape;
use kernels::{Format, Matrix, MatrixStack};

impl PackedTensors<'_> {
    /// The matrices of a tensor, one after the other by rows; `None`: they are to be packed.
    pub(super) fn cached<const N: usize>(
        &mut self,
        name: &str,
        rows: [usize; N],
        cols: usize,
    ) -> Result<Option<[Matrix; N]>, LoadError> {
        if !self.sections.has_file() {
            return Ok(None);
        }
        let tensor = self.tensors.find(name)?;
        self.tensors
            .check_shape(&tensor, &[cols as u64, rows.iter().sum::<usize>() as u64])?;
        let format = self.tensors.packable(&tensor)?;
        let mut parts = Vec::with_capacity(N);
        for (number, rows) in (0..).zip(rows) {
            let shape = section((name, number), format, 1, (rows, cols));
            let Some(bytes) = self.sections.take(&shape, self.pool) else {
                return Ok(None);
            };
            let matrix = Matrix::from_packed(self.isa, self.pool, format, rows, cols, bytes);
            let Ok(matrix) = matrix else {
                return Ok(None);
            };
            parts.push(matrix);
        }
        self.finish(&tensor);
        Ok(parts.try_into().ok())
    }

    /// The stacks of a tensor of `count` matrices with parts of these numbers of rows; `None`: they are to be packed.
    pub(super) fn cached_stacks<const N: usize>(
        &mut self,
        name: &str,
        count: usize,
        rows: [usize; N],
        cols: usize,
    ) -> Result<Option<[MatrixStack; N]>, LoadError> {
        if !self.sections.has_file() {
            return Ok(None);
        }
        let tensor = self.tensors.find(name)?;
        let all: usize = rows.iter().sum();
        self.tensors
            .check_shape(&tensor, &[cols as u64, all as u64, count as u64])?;
        let format = self.tensors.packable(&tensor)?;
        let mut stacks = Vec::with_capacity(N);
        for (number, rows) in (0..).zip(rows) {
            let Some(stack) = self.take_stack((name, number), format, count, (rows, cols)) else {
                return Ok(None);
            };
            stacks.push(stack);
        }
        self.finish(&tensor);
        Ok(stacks.try_into().ok())
    }

    /// The stack of a tensor for each of `count` matrices; `None`: the stack is to be packed.
    pub(super) fn cached_stack_of(
        &mut self,
        name_of: &impl Fn(usize) -> String,
        format: Format,
        count: usize,
        (rows, cols): (usize, usize),
    ) -> Result<Option<MatrixStack>, LoadError> {
        if !self.sections.has_file() {
            return Ok(None);
        }
        for matrix in 0..count {
            let tensor = self.tensors.find(&name_of(matrix))?;
            self.tensors
                .check_shape(&tensor, &[cols as u64, rows as u64])?;
            // An error, which packing reports.
            if self.tensors.packable(&tensor)? != format {
                return Ok(None);
            }
        }
        let stack = self.take_stack((&name_of(0), 0), format, count, (rows, cols));
        if stack.is_some() {
            for matrix in 0..count {
                let tensor = self.tensors.find(&name_of(matrix))?;
                self.finish(&tensor);
            }
        }
        Ok(stack)
    }

    fn take_stack(
        &mut self,
        place: (&str, u32),
        format: Format,
        count: usize,
        shape: (usize, usize),
    ) -> Option<MatrixStack> {
        let wanted = section(place, format, count, shape);
        let bytes = self.sections.take(&wanted, self.pool)?;
        MatrixStack::from_packed(self.isa, format, count, shape, bytes).ok()
    }

    /// Keeps a handle of a packed matrix for a later load.
    pub(super) fn keep(&mut self, place: (&str, u32), matrix: &Matrix) {
        let shape = section(place, matrix.format(), 1, (matrix.rows(), matrix.cols()));
        self.sections.keep(&shape, || matrix.packed());
    }

    /// Keeps a handle of a packed stack for a later load.
    pub(super) fn keep_stack(&mut self, place: (&str, u32), stack: &MatrixStack) {
        let rows_cols = (stack.rows(), stack.cols());
        let shape = section(place, stack.format(), stack.count(), rows_cols);
        self.sections.keep(&shape, || stack.packed());
    }
}

fn section(
    (tensor, part): (&str, u32),
    format: Format,
    count: usize,
    (rows, cols): (usize, usize),
) -> SectionShape {
    SectionShape {
        tensor: tensor.to_owned(),
        part,
        format,
        count,
        rows,
        cols,
    }
}
