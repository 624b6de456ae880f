//! Description of a tensor at load.

use crate::gguf::{TensorInfo, TensorKind};
use kernels::Format;

/// A tensor as loaded, under its GGUF name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorEntry<'a> {
    /// Name of the tensor.
    pub name: &'a str,
    /// Shape in ggml's order: `dims[0]` is the length of a row.
    pub dims: &'a [u64],
    /// Format at load, which differs from the stored format where safetensors are quantized.
    pub kind: TensorKind,
    /// Number of bytes in this kind.
    pub bytes: u64,
}

impl<'a> From<&TensorInfo<'a>> for TensorEntry<'a> {
    fn from(tensor: &TensorInfo<'a>) -> Self {
        Self {
            name: tensor.name,
            dims: tensor.dims,
            kind: tensor.kind,
            bytes: tensor.bytes.len() as u64,
        }
    }
}

impl TensorEntry<'_> {
    /// Length of a row.
    pub fn cols(&self) -> usize {
        self.dims[0] as usize
    }

    /// Number of rows, over all further dimensions.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product::<u64>() as usize
    }

    /// Number of weights.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The kernels' format, if supported.
    pub fn format(&self) -> Option<Format> {
        self.kind.format()
    }
}
