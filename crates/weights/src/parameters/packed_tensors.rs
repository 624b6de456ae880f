//! Tensors of files, found by name, checked, and packed once for the kernels.

use super::RowTable;
use super::file_tensors::FileTensors;
use super::tensors::{KernelPacking, Tensors};
use crate::LoadError;
use crate::config::LatentConfig;
use crate::{ModelFiles, PackedSections, TensorEntry};
use kernels::{
    Format, Isa, Matrix, MatrixStack, NonFiniteWeight, PackError, Pool, requantize_rows,
};
use std::borrow::Cow;

/// Progress of packing a file. Counts increase, totals are constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of finished tensors, as stored.
    pub bytes_done: u64,
    /// Bytes of all tensors.
    pub bytes_total: u64,
    /// Finished tensors.
    pub tensors_done: u64,
    /// All tensors.
    pub tensors_total: u64,
}

/// The tensors of a model being loaded.
pub(super) struct PackedTensors<'a> {
    pub(super) tensors: FileTensors<'a>,
    pub(super) isa: Isa,
    pub(super) pool: &'a mut Pool,
    /// Packed matrices of an earlier load.
    pub(super) sections: &'a mut PackedSections,
    progress: &'a mut dyn FnMut(Packed),
    packed: Packed,
    /// The format that matrices of floats are converted to.
    quantize: Option<Format>,
}

impl<'a> PackedTensors<'a> {
    pub(super) fn new(
        files: &'a ModelFiles,
        isa: Isa,
        pool: &'a mut Pool,
        sections: &'a mut PackedSections,
        progress: &'a mut dyn FnMut(Packed),
    ) -> Self {
        let packed = Packed {
            bytes_total: files.tensors().iter().map(|tensor| tensor.bytes).sum(),
            tensors_total: files.tensors().len() as u64,
            ..Packed::default()
        };
        progress(packed);
        Self {
            tensors: FileTensors::new(files),
            isa,
            pool,
            sections,
            progress,
            packed,
            quantize: None,
        }
    }

    /// These tensors with matrices of floats in another format, where rows are whole blocks of it.
    pub(super) fn quantized(self, quantize: Option<Format>) -> Self {
        Self { quantize, ..self }
    }

    /// The bytes of a matrix in the format that it is packed in.
    fn converted<'b>(
        &mut self,
        name: &str,
        (format, bytes): (Format, Cow<'b, [u8]>),
        cols: usize,
    ) -> Result<(Format, Cow<'b, [u8]>), LoadError> {
        let is_float = matches!(format, Format::F32 | Format::F16 | Format::BF16);
        let to = self.quantize.filter(|_| is_float);
        let Some(to) = to.filter(|to| cols.is_multiple_of(to.block_weights())) else {
            return Ok((format, bytes));
        };
        requantize_rows(self.pool, (format, &bytes), cols, to, |row| row)
            .map(|bytes| (to, Cow::Owned(bytes)))
            .map_err(|NonFiniteWeight(index)| LoadError::Value {
                tensor: self.tensors.files.label(name),
                index,
            })
    }

    /// The bytes of a matrix as in the file, and their format.
    pub(super) fn raw(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(Format, Vec<u8>), LoadError> {
        let tensor = self.tensors.find(name)?;
        self.tensors
            .check_shape(&tensor, &[cols as u64, rows as u64])?;
        let format = self.tensors.packable(&tensor)?;
        let row_bytes = self.tensors.row_bytes(name, format, cols)?;
        let wanted = rows * row_bytes;
        let bytes = self.tensors.files.read(name, self.pool)?.into_owned();
        if bytes.len() != wanted {
            let given = bytes.len();
            return Err(self
                .tensors
                .pack_error(name, PackError::Size { wanted, given }));
        }
        self.finish(&tensor);
        Ok((format, bytes))
    }

    /// Packs part `number` of a tensor.
    fn pack(
        &mut self,
        (name, number): (&str, u32),
        format: Format,
        rows: usize,
        cols: usize,
        bytes: &[u8],
    ) -> Result<Matrix, LoadError> {
        let packed = Matrix::pack(self.isa, self.pool, format, rows, cols, bytes);
        let matrix = packed.map_err(|error| self.tensors.pack_error(name, error))?;
        self.keep((name, number), &matrix);
        Ok(matrix)
    }

    /// Counts a tensor as loaded and releases the original's memory.
    pub(super) fn finish(&mut self, tensor: &TensorEntry<'_>) {
        if self.tensors.take(tensor.name) {
            self.packed.bytes_done += tensor.bytes;
            self.packed.tensors_done += 1;
            (self.progress)(self.packed);
        }
        self.tensors.files.release(tensor.name);
    }
}

impl Tensors for PackedTensors<'_> {
    type Packing = KernelPacking;

    fn has(&self, name: &str) -> bool {
        self.tensors.has(name)
    }

    fn rows_of(&self, name: &str) -> Result<usize, LoadError> {
        Ok(self.tensors.find(name)?.rows())
    }

    fn split<const N: usize>(
        &mut self,
        name: &str,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[Matrix; N], LoadError> {
        if let Some(parts) = self.cached(name, rows, cols)? {
            return Ok(parts);
        }
        let tensor = self.tensors.find(name)?;
        self.tensors
            .check_shape(&tensor, &[cols as u64, rows.iter().sum::<usize>() as u64])?;
        let format = self.tensors.packable(&tensor)?;
        let bytes = self.tensors.files.read(name, self.pool)?;
        let (format, bytes) = self.converted(name, (format, bytes), cols)?;
        let row_bytes = cols / format.block_weights() * format.block_bytes();
        let mut start = 0;
        let mut parts = [const { None }; N];
        for (number, (part, rows)) in (0..).zip(parts.iter_mut().zip(rows)) {
            let end = start + rows * row_bytes;
            let given = bytes.get(start..end).unwrap_or_default();
            *part = Some(self.pack((name, number), format, rows, cols, given)?);
            start = end;
        }
        self.finish(&tensor);
        Ok(parts.map(|part| part.expect("each was packed above")))
    }

    fn interleaved<const N: usize>(
        &mut self,
        name: &str,
        groups: usize,
        matrices: [&[usize]; N],
        cols: usize,
    ) -> Result<[Matrix; N], LoadError> {
        let rows = matrices.map(|parts| parts.iter().sum::<usize>());
        if let Some(parts) = self.cached(name, rows, cols)? {
            return Ok(parts);
        }
        let all: usize = rows.iter().sum();
        let (format, bytes) = self.raw(name, all, cols)?;
        let row_bytes = cols / format.block_weights() * format.block_bytes();
        let mut start = 0;
        let mut packed = [const { None }; N];
        let each = packed.iter_mut().zip(matrices.into_iter().zip(rows));
        for (number, (matrix, (parts, rows))) in (0..).zip(each) {
            let mut gathered = Vec::with_capacity(rows * row_bytes);
            for part in parts {
                let len = part / groups * row_bytes;
                let groups = bytes.chunks_exact(all / groups * row_bytes);
                groups.for_each(|group| gathered.extend_from_slice(&group[start..start + len]));
                start += len;
            }
            *matrix = Some(self.pack((name, number), format, rows, cols, &gathered)?);
        }
        Ok(packed.map(|matrix| matrix.expect("each was packed above")))
    }

    fn float_matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, LoadError> {
        self.pack_floats(name, rows, cols)
    }

    fn stacks<const N: usize>(
        &mut self,
        name: &str,
        count: usize,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[MatrixStack; N], LoadError> {
        self.pack_stacks(name, count, rows, cols)
    }

    fn stack_of(
        &mut self,
        name_of: impl Fn(usize) -> String,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<MatrixStack, LoadError> {
        self.pack_stack_of(name_of, count, rows, cols)
    }

    fn joined_heads(
        &mut self,
        name: &str,
        heads: usize,
        sizes: &LatentConfig,
    ) -> Result<(MatrixStack, MatrixStack), LoadError> {
        self.pack_joined_heads(name, heads, sizes)
    }

    fn row_table(&mut self, name: &str, rows: usize, cols: usize) -> Result<RowTable, LoadError> {
        let (format, bytes) = self.raw(name, rows, cols)?;
        Ok(RowTable {
            format,
            cols,
            bytes,
        })
    }

    fn numbers(&mut self, name: &str, dims: &[u64]) -> Result<Vec<f32>, LoadError> {
        let (tensor, numbers) = self.tensors.numbers(name, dims, self.pool)?;
        self.finish(&tensor);
        Ok(numbers)
    }

    fn per_head(&mut self, name: &str, heads: usize) -> Result<Vec<f32>, LoadError> {
        match self.tensors.find(name)?.dims.len() {
            1 => self.vector(name, heads),
            _ => self.table(name, heads, 1),
        }
    }

    fn ignore(&mut self, name: &str) {
        self.tensors.take(name);
    }

    fn ignore_prefix(&mut self, prefix: &str) {
        self.tensors.take_prefix(prefix);
    }

    fn finish_all(&mut self) -> Result<(), LoadError> {
        self.tensors.check_unused()?;
        // Ignored tensors count as done.
        self.packed.bytes_done = self.packed.bytes_total;
        self.packed.tensors_done = self.packed.tensors_total;
        (self.progress)(self.packed);
        Ok(())
    }
}
