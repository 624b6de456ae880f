//! Tensors looked up by name, checked, and packed once.

use super::{LoadError, Packed};
use crate::gguf::{Gguf, TensorInfo};
use half::{bf16, f16};
use kernels::{Format, Isa, Matrix, Pool};
use std::collections::HashSet;
use std::ops::Range;

/// The formats that [`Matrix::pack`] reads, for errors.
const FORMATS: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K";

/// Tensors that may be in a file without being used: rope tables of old converters, and factors
/// for the other context length.
const IGNORED: [&str; 4] = [
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    ".attn_rot_embd",
];

/// A file's tensors while they are being loaded.
pub(super) struct Tensors<'a> {
    gguf: &'a Gguf,
    isa: Isa,
    pool: &'a mut Pool,
    progress: &'a mut dyn FnMut(Packed),
    taken: HashSet<String>,
    packed: Packed,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(
        gguf: &'a Gguf,
        isa: Isa,
        pool: &'a mut Pool,
        progress: &'a mut dyn FnMut(Packed),
    ) -> Self {
        let packed = Packed {
            bytes_total: gguf.tensors().map(|tensor| tensor.bytes.len() as u64).sum(),
            tensors_total: gguf.tensors().count() as u64,
            ..Packed::default()
        };
        progress(packed);
        Self {
            gguf,
            isa,
            pool,
            progress,
            taken: HashSet::new(),
            packed,
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// Length of `name`'s second dimension, before its shape is checked.
    pub(super) fn rows_of(&self, name: &str) -> Result<usize, LoadError> {
        Ok(self.find(name)?.rows())
    }

    /// Packs a matrix of `rows` outputs and `cols` inputs.
    pub(super) fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, LoadError> {
        let [matrix] = self.split(name, [rows], cols)?;
        Ok(matrix)
    }

    /// Packs a tensor of several matrices, one after the other by rows.
    pub(super) fn split<const N: usize>(
        &mut self,
        name: &str,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[Matrix; N], LoadError> {
        let tensor = self.find(name)?;
        check_shape(&tensor, &[cols as u64, rows.iter().sum::<usize>() as u64])?;
        let wrong = || LoadError::Kind {
            tensor: name.into(),
            found: tensor.kind,
            wanted: FORMATS,
        };
        let format = tensor.format().map_err(|_| wrong())?;
        let row_bytes = cols / format.block_weights() * format.block_bytes();
        let mut start = 0;
        let mut parts = [const { None }; N];
        for (part, rows) in parts.iter_mut().zip(rows) {
            let end = start + rows * row_bytes;
            *part = Some(self.pack(&tensor, format, rows, cols, start..end)?);
            start = end;
        }
        self.finish(&tensor);
        Ok(parts.map(|part| part.expect("each was packed above")))
    }

    /// Reads a norm, bias or table of `len` numbers.
    pub(super) fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.find(name)?;
        check_shape(&tensor, &[len as u64])?;
        let wrong = || LoadError::Kind {
            tensor: name.into(),
            found: tensor.kind,
            wanted: "F32, F16 or BF16",
        };
        let numbers = numbers(tensor.kind.format(), tensor.bytes).ok_or_else(wrong)?;
        if let Some(index) = numbers.iter().position(|number| !number.is_finite()) {
            return Err(LoadError::Value {
                tensor: name.into(),
                index,
            });
        }
        self.finish(&tensor);
        Ok(numbers)
    }

    /// As [`Self::vector`], if the tensor is there.
    pub(super) fn vector_if_there(
        &mut self,
        name: &str,
        len: usize,
    ) -> Result<Option<Vec<f32>>, LoadError> {
        self.has(name).then(|| self.vector(name, len)).transpose()
    }

    /// Refuses a file with tensors that nothing asked for.
    pub(super) fn finish_all(&mut self) -> Result<(), LoadError> {
        let ignored = |name: &str| IGNORED.iter().any(|part| name.contains(part));
        let unused = self
            .gguf
            .tensors()
            .find(|tensor| !self.taken.contains(tensor.name) && !ignored(tensor.name));
        if let Some(tensor) = unused {
            return Err(LoadError::Unused {
                tensor: tensor.name.into(),
            });
        }
        // What nothing asks for is ignored, and so done.
        self.packed.bytes_done = self.packed.bytes_total;
        self.packed.tensors_done = self.packed.tensors_total;
        (self.progress)(self.packed);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<TensorInfo<'a>, LoadError> {
        self.gguf.tensor(name).ok_or_else(|| LoadError::Missing {
            tensor: name.into(),
        })
    }

    fn pack(
        &mut self,
        tensor: &TensorInfo<'_>,
        format: Format,
        rows: usize,
        cols: usize,
        bytes: Range<usize>,
    ) -> Result<Matrix, LoadError> {
        let given = tensor.bytes.get(bytes).unwrap_or_default();
        Matrix::pack(self.isa, self.pool, format, rows, cols, given).map_err(|error| {
            LoadError::Pack {
                tensor: tensor.name.into(),
                error,
            }
        })
    }

    /// Counts a tensor as loaded and gives the original's memory back.
    fn finish(&mut self, tensor: &TensorInfo<'_>) {
        if self.taken.insert(tensor.name.to_owned()) {
            self.packed.bytes_done += tensor.bytes.len() as u64;
            self.packed.tensors_done += 1;
            (self.progress)(self.packed);
        }
        self.gguf.release(tensor);
    }
}

/// Dims must be equal; dimensions of 1 at the end are no difference.
fn check_shape(tensor: &TensorInfo<'_>, wanted: &[u64]) -> Result<(), LoadError> {
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
        tensor: tensor.name.into(),
        wanted: wanted.to_vec(),
        found: tensor.dims.to_vec(),
    })
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
