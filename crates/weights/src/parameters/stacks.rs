//! Tensors of several matrices of one shape.

use super::tensors::Tensors;
use crate::LoadError;
use kernels::{Format, Matrix, MatrixStack, PackError};

impl Tensors<'_> {
    /// Packs a tensor of `count` matrices, each of which has parts of these numbers of rows, as one stack for each part.
    pub fn stacks<const N: usize>(
        &mut self,
        name: &str,
        count: usize,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[MatrixStack; N], LoadError> {
        if let Some(stacks) = self.cached_stacks(name, count, rows, cols)? {
            return Ok(stacks);
        }
        let tensor = self.find(name)?;
        let all: usize = rows.iter().sum();
        self.check_shape(&tensor, &[cols as u64, all as u64, count as u64])?;
        let format = self.packable(&tensor)?;
        let failed = |error| self.pack_error(name, error);
        let mut stacks = Vec::with_capacity(N);
        for rows in rows {
            let stack = MatrixStack::new(self.isa, format, count, rows, cols);
            stacks.push(stack.map_err(failed)?);
        }
        let row_bytes = cols / format.block_weights() * format.block_bytes();
        let bytes = self.files.read(name, self.pool)?;
        let mut start = 0;
        for matrix in 0..count {
            for stack in &mut stacks {
                let end = start + stack.rows() * row_bytes;
                let given = bytes.get(start..end).unwrap_or_default();
                let packed = stack.pack(self.pool, matrix, given);
                packed.map_err(|error| self.pack_error(name, error))?;
                start = end;
            }
        }
        drop(bytes);
        self.finish(&tensor);
        for (number, stack) in (0..).zip(&stacks) {
            self.keep_stack((name, number), stack);
        }
        Ok(stacks
            .try_into()
            .unwrap_or_else(|_| unreachable!("one stack for each part")))
    }

    /// Packs a tensor for each of `count` matrices, all of one format, as a stack.
    pub fn stack_of(
        &mut self,
        name_of: impl Fn(usize) -> String,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<MatrixStack, LoadError> {
        let first = name_of(0);
        let format = self.packable(&self.find(&first)?)?;
        if let Some(stack) = self.cached_stack_of(&name_of, format, count, (rows, cols))? {
            return Ok(stack);
        }
        let stack = MatrixStack::new(self.isa, format, count, rows, cols);
        let mut stack = stack.map_err(|error| self.pack_error(&first, error))?;
        for matrix in 0..count {
            let name = name_of(matrix);
            let tensor = self.find(&name)?;
            self.check_shape(&tensor, &[cols as u64, rows as u64])?;
            if self.packable(&tensor)? != format {
                return Err(LoadError::Kind {
                    tensor: self.files.label(&name),
                    found: tensor.kind,
                    wanted: "the format of the layer's first expert",
                });
            }
            let bytes = self.files.read(&name, self.pool)?;
            let packed = stack.pack(self.pool, matrix, &bytes);
            packed.map_err(|error| self.pack_error(&name, error))?;
            drop(bytes);
            self.finish(&tensor);
        }
        self.keep_stack((&first, 0), &stack);
        Ok(stack)
    }

    /// Packs a matrix of floats in f32, for products that do not use AMX tiles.
    pub fn float_matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, LoadError> {
        let numbers = self.table(name, rows, cols)?;
        let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        let isa = self.isa.without_amx();
        Matrix::pack(isa, self.pool, Format::F32, rows, cols, &bytes)
            .map_err(|error| self.pack_error(name, error))
    }

    pub(super) fn pack_error(&self, name: &str, error: PackError) -> LoadError {
        LoadError::Pack {
            tensor: self.files.label(name),
            error,
        }
    }
}
