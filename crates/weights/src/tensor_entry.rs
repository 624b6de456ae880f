//! Description of a tensor at load.

use crate::gguf::TensorKind;
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

impl TensorEntry<'_> {
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
