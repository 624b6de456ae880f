//! Tensors of files, found by name, checked, and packed once for the kernels.

use super::tensors::{KernelPacking, Tensors};
use super::{Packed, RowTable};
use crate::LoadError;
use crate::config::LatentConfig;
use crate::{ModelFiles, PackedSections, TensorEntry};
use half::{bf16, f16};
use kernels::{Format, Isa, Matrix, MatrixStack, PackError, Pool};
use std::collections::HashSet;

/// The formats that [`Matrix::pack`] reads, for errors.
const FORMATS: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS or MXFP4";

/// Tensors that may be in a file without being used: rope tables of old converters, and factors for the other
/// context length.
const IGNORED: [&str; 4] = [
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    ".attn_rot_embd",
];

/// The tensors of a model being loaded.
pub(super) struct PackedTensors<'a> {
    pub(super) files: &'a ModelFiles,
    pub(super) isa: Isa,
    pub(super) pool: &'a mut Pool,
    /// Packed matrices of an earlier load.
    pub(super) sections: &'a mut PackedSections,
    progress: &'a mut dyn FnMut(Packed),
    taken: HashSet<String>,
    packed: Packed,
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
            files,
            isa,
            pool,
            sections,
            progress,
            taken: HashSet::new(),
            packed,
        }
    }

    /// The bytes of a matrix as in the file, and their format.
    pub(super) fn raw(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(Format, Vec<u8>), LoadError> {
        let tensor = self.find(name)?;
        self.check_shape(&tensor, &[cols as u64, rows as u64])?;
        let format = self.packable(&tensor)?;
        let failed = |error| LoadError::Pack {
            tensor: self.files.label(name),
            error,
        };
        if !cols.is_multiple_of(format.block_weights()) {
            return Err(failed(PackError::Cols(cols)));
        }
        let wanted = rows * (cols / format.block_weights() * format.block_bytes());
        let bytes = self.files.read(name, self.pool)?.into_owned();
        if bytes.len() != wanted {
            let given = bytes.len();
            return Err(failed(PackError::Size { wanted, given }));
        }
        self.finish(&tensor);
        Ok((format, bytes))
    }

    pub(super) fn find(&self, name: &str) -> Result<TensorEntry<'a>, LoadError> {
        self.files.tensor(name).ok_or_else(|| LoadError::Missing {
            tensor: self.files.label(name),
        })
    }

    /// The format of a tensor that can be packed.
    pub(super) fn packable(&self, tensor: &TensorEntry<'_>) -> Result<Format, LoadError> {
        tensor.format().ok_or_else(|| LoadError::Kind {
            tensor: self.files.label(tensor.name),
            found: tensor.kind,
            wanted: FORMATS,
        })
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
        let matrix = packed.map_err(|error| self.pack_error(name, error))?;
        self.keep((name, number), &matrix);
        Ok(matrix)
    }

    /// Counts a tensor as loaded and releases the original's memory.
    pub(super) fn finish(&mut self, tensor: &TensorEntry<'_>) {
        if self.taken.insert(tensor.name.to_owned()) {
            self.packed.bytes_done += tensor.bytes;
            self.packed.tensors_done += 1;
            (self.progress)(self.packed);
        }
        self.files.release(tensor.name);
    }

    /// Compares dims; trailing dimensions of 1 are ignored.
    pub(super) fn check_shape(
        &self,
        tensor: &TensorEntry<'_>,
        wanted: &[u64],
    ) -> Result<(), LoadError> {
        let significant = |dims: &'_ [u64]| {
            dims.iter()
                .rposition(|&dim| dim != 1)
                .map_or(0, |at| at + 1)
        };
        let same = tensor.dims[..significant(tensor.dims)] == wanted[..significant(wanted)];
        if same {
            return Ok(());
        }
        Err(LoadError::Shape {
            tensor: self.files.label(tensor.name),
            wanted: wanted.to_vec(),
            found: tensor.dims.to_vec(),
        })
    }
}

impl Tensors for PackedTensors<'_> {
    type Packing = KernelPacking;

    fn has(&self, name: &str) -> bool {
        self.files.tensor(name).is_some()
    }

    fn rows_of(&self, name: &str) -> Result<usize, LoadError> {
        Ok(self.find(name)?.rows())
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
        let tensor = self.find(name)?;
        self.check_shape(&tensor, &[cols as u64, rows.iter().sum::<usize>() as u64])?;
        let format = self.packable(&tensor)?;
        let row_bytes = cols / format.block_weights() * format.block_bytes();
        let bytes = self.files.read(name, self.pool)?;
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
        let tensor = self.find(name)?;
        self.check_shape(&tensor, dims)?;
        let wrong = || LoadError::Kind {
            tensor: self.files.label(name),
            found: tensor.kind,
            wanted: "F32, F16 or BF16",
        };
        let bytes = self.files.read(name, self.pool)?;
        let numbers = numbers(tensor.format(), &bytes).ok_or_else(wrong)?;
        if let Some(index) = numbers.iter().position(|number| !number.is_finite()) {
            return Err(LoadError::Value {
                tensor: self.files.label(name),
                index,
            });
        }
        self.finish(&tensor);
        Ok(numbers)
    }

    fn per_head(&mut self, name: &str, heads: usize) -> Result<Vec<f32>, LoadError> {
        match self.find(name)?.dims.len() {
            1 => self.vector(name, heads),
            _ => self.table(name, heads, 1),
        }
    }

    fn ignore(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    fn ignore_layer(&mut self, layer: usize) {
        let prefix = format!("blk.{layer}.");
        let names = self.files.tensors();
        let names = names.iter().map(|tensor| tensor.name);
        let of_layer = names.filter(|name| name.starts_with(&prefix));
        self.taken.extend(of_layer.map(str::to_owned));
    }

    fn finish_all(&mut self) -> Result<(), LoadError> {
        let ignored = |name: &str| IGNORED.iter().any(|part| name.contains(part));
        let tensors = self.files.tensors();
        let unused = tensors
            .iter()
            .find(|tensor| !self.taken.contains(tensor.name) && !ignored(tensor.name));
        if let Some(tensor) = unused {
            return Err(LoadError::Unused {
                tensor: self.files.label(tensor.name),
            });
        }
        // Ignored tensors count as done.
        self.packed.bytes_done = self.packed.bytes_total;
        self.packed.tensors_done = self.packed.tensors_total;
        (self.progress)(self.packed);
        Ok(())
    }
}

fn numbers(format: Option<Format>, bytes: &[u8]) -> Option<Vec<f32>> {
    let halves = |number: fn([u8; 2]) -> f32| {
        bytes
            .chunks_exact(2)
            .map(|pair| number([pair[0], pair[1]]))
            .collect()
    };
    Some(match format? {
        Format::F32 => bytes
            .chunks_exact(4)
            .map(|quad| f32::from_le_bytes([quad[0], quad[1], quad[2], quad[3]]))
            .collect(),
        Format::F16 => halves(|pair| f16::from_le_bytes(pair).to_f32()),
        Format::BF16 => halves(|pair| bf16::from_le_bytes(pair).to_f32()),
        _ => return None,
    })
}
