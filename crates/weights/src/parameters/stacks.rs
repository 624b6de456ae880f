//! Tensors of several matrices of one shape.

use super::described_reader::columns;
use super::packed_tensors::PackedTensors;
use super::tensors::Tensors;
use crate::LoadError;
use crate::config::LatentConfig;
use kernels::{Format, Matrix, MatrixStack};

impl PackedTensors<'_> {
    /// Packs a tensor of `count` matrices, each of which has parts of these numbers of rows, as one stack for each part.
    pub(super) fn pack_stacks<const N: usize>(
        &mut self,
        name: &str,
        count: usize,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[MatrixStack; N], LoadError> {
        if let Some(stacks) = self.cached_stacks(name, count, rows, cols)? {
            return Ok(stacks);
        }
        let tensor = self.tensors.find(name)?;
        let all: usize = rows.iter().sum();
        self.tensors
            .check_shape(&tensor, &[cols as u64, all as u64, count as u64])?;
        let format = self.tensors.packable(&tensor)?;
        let failed = |error| self.tensors.pack_error(name, error);
        let mut stacks = Vec::with_capacity(N);
        for rows in rows {
            let stack = MatrixStack::new(self.isa, format, count, rows, cols);
            stacks.push(stack.map_err(failed)?);
        }
        let row_bytes = cols / format.block_weights() * format.block_bytes();
        let bytes = self.tensors.files.read(name, self.pool)?;
        let mut start = 0;
        for matrix in 0..count {
            for stack in &mut stacks {
                let end = start + stack.rows() * row_bytes;
                let given = bytes.get(start..end).unwrap_or_default();
                let packed = stack.pack(self.pool, matrix, given);
                packed.map_err(|error| self.tensors.pack_error(name, error))?;
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
    pub(super) fn pack_stack_of(
        &mut self,
        name_of: impl Fn(usize) -> String,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<MatrixStack, LoadError> {
        let first = name_of(0);
        let format = self.tensors.packable(&self.tensors.find(&first)?)?;
        if let Some(stack) = self.cached_stack_of(&name_of, format, count, (rows, cols))? {
            return Ok(stack);
        }
        let stack = MatrixStack::new(self.isa, format, count, rows, cols);
        let mut stack = stack.map_err(|error| self.tensors.pack_error(&first, error))?;
        for matrix in 0..count {
            let name = name_of(matrix);
            let tensor = self.tensors.find(&name)?;
            self.tensors
                .check_shape(&tensor, &[cols as u64, rows as u64])?;
            if self.tensors.packable(&tensor)? != format {
                return Err(self.tensors.unlike_first(&tensor));
            }
            let bytes = self.tensors.files.read(&name, self.pool)?;
            let packed = stack.pack(self.pool, matrix, &bytes);
            packed.map_err(|error| self.tensors.pack_error(&name, error))?;
            drop(bytes);
            self.finish(&tensor);
        }
        self.keep_stack((&first, 0), &stack);
        Ok(stack)
    }

    /// Packs a matrix of floats in f32, for products that do not use AMX tiles.
    pub(super) fn pack_floats(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, LoadError> {
        let numbers = self.numbers(name, &[cols as u64, rows as u64])?;
        let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        let isa = self.isa.without_amx();
        Matrix::pack(isa, self.pool, Format::F32, rows, cols, &bytes)
            .map_err(|error| self.tensors.pack_error(name, error))
    }

    /// The rows of each head are those of its keys, then those of its values. Keys are transposed, which blocks of a row do not
    /// allow, so they become f32.
    pub(super) fn pack_joined_heads(
        &mut self,
        name: &str,
        heads: usize,
        sizes: &LatentConfig,
    ) -> Result<(MatrixStack, MatrixStack), LoadError> {
        let LatentConfig {
            rank, plain, value, ..
        } = *sizes;
        let (format, bytes) = self.raw(name, heads * (plain + value), rank)?;
        let row_bytes = rank / format.block_weights() * format.block_bytes();
        let (isa, failed) = (self.isa, "checked above");
        let mut keys = MatrixStack::new(isa, Format::F32, heads, rank, plain).expect(failed);
        let mut values = MatrixStack::new(isa, format, heads, value, rank).expect(failed);
        let of_heads = bytes.chunks_exact((plain + value) * row_bytes);
        for (head, bytes) in of_heads.enumerate() {
            let (key, rest) = bytes.split_at(plain * row_bytes);
            let packed = keys.pack(self.pool, head, &columns(format, key, rank));
            let packed = packed.and_then(|()| values.pack(self.pool, head, rest));
            packed.map_err(|error| self.tensors.pack_error(name, error))?;
        }
        Ok((keys, values))
    }
}
