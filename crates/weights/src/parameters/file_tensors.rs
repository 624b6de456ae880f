//! Tensors of files, found by name and checked: what every load of them asks, however their matrices are kept.

use crate::{LoadError, ModelFiles, TensorEntry, vision};
use half::{bf16, f16};
use kernels::{Format, PackError, Pool};
use std::collections::HashSet;

/// The formats that [`kernels::Matrix::pack`] reads, for errors.
const FORMATS: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS or MXFP4";

/// Tensors that may be in a file without being used: rope tables of old converters, factors for the other context length, and
/// MTP heads with transformers' names, which Ollama's converter wrote without keys.
const IGNORED: [&str; 5] = [
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    ".attn_rot_embd",
    "mtp.",
];

/// The tensors of files, and which of them a load has used.
pub(super) struct FileTensors<'a> {
    pub(super) files: &'a ModelFiles,
    taken: HashSet<String>,
}

impl<'a> FileTensors<'a> {
    pub(super) fn new(files: &'a ModelFiles) -> Self {
        Self {
            files,
            taken: HashSet::new(),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.files.tensor(name).is_some()
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

    /// Bytes of a row.
    pub(super) fn row_bytes(
        &self,
        name: &str,
        format: Format,
        cols: usize,
    ) -> Result<usize, LoadError> {
        if cols.is_multiple_of(format.block_weights()) {
            Ok(cols / format.block_weights() * format.block_bytes())
        } else {
            Err(self.pack_error(name, PackError::Cols(cols)))
        }
    }

    /// The numbers of a tensor of this shape.
    pub(super) fn numbers(
        &self,
        name: &str,
        dims: &[u64],
        pool: &mut Pool,
    ) -> Result<(TensorEntry<'a>, Vec<f32>), LoadError> {
        let tensor = self.find(name)?;
        self.check_shape(&tensor, dims)?;
        let bytes = self.files.read(name, pool)?;
        let numbers = self.finite(&tensor, &bytes)?;
        Ok((tensor, numbers))
    }

    /// The numbers of a tensor of floats with these bytes.
    pub(super) fn finite(
        &self,
        tensor: &TensorEntry<'_>,
        bytes: &[u8],
    ) -> Result<Vec<f32>, LoadError> {
        let label = || self.files.label(tensor.name);
        let numbers = numbers(tensor.format(), bytes).ok_or_else(|| LoadError::Kind {
            tensor: label(),
            found: tensor.kind,
            wanted: "F32, F16 or BF16",
        })?;
        match numbers.iter().position(|number| !number.is_finite()) {
            None => Ok(numbers),
            Some(index) => Err(LoadError::Value {
                tensor: label(),
                index,
            }),
        }
    }

    /// Counts a tensor as used. Returns whether it was not.
    pub(super) fn take(&mut self, name: &str) -> bool {
        self.taken.insert(name.to_owned())
    }

    /// Counts the tensors whose names begin with `prefix` as used.
    pub(super) fn take_prefix(&mut self, prefix: &str) {
        let names = self.files.tensors();
        let names = names.iter().map(|tensor| tensor.name);
        let found = names.filter(|name| name.starts_with(prefix));
        self.taken.extend(found.map(str::to_owned));
    }

    /// Rejects unused tensors.
    pub(super) fn check_unused(&self) -> Result<(), LoadError> {
        let has_text = !vision::is_tower(self.files.metadata());
        let ignored = |name: &str| {
            let is_named = IGNORED.iter().any(|part| name.contains(part));
            is_named || (has_text && vision::is_tower_tensor(name))
        };
        let tensors = self.files.tensors();
        let unused = tensors
            .iter()
            .find(|tensor| !self.taken.contains(tensor.name) && !ignored(tensor.name));
        match unused {
            None => Ok(()),
            Some(tensor) => Err(LoadError::Unused {
                tensor: self.files.label(tensor.name),
            }),
        }
    }

    /// The error of an expert that has another format than the first.
    pub(super) fn unlike_first(&self, tensor: &TensorEntry<'_>) -> LoadError {
        LoadError::Kind {
            tensor: self.files.label(tensor.name),
            found: tensor.kind,
            wanted: "the format of the layer's first expert",
        }
    }

    pub(super) fn pack_error(&self, name: &str, error: PackError) -> LoadError {
        LoadError::Pack {
            tensor: self.files.label(name),
            error,
        }
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
