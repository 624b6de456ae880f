//! Description of a tensor as the loader gets it.

use crate::gguf::TensorKind;
use kernels::Format;

/// A tensor as it will be loaded, under its name in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorEntry<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its shape in ggml's order: `dims[0]` is the length of a row.
    pub dims: &'a [u64],
    /// What it is loaded as: for safetensors that are quantised, not what the file has.
    pub kind: TensorKind,
    /// Bytes, as this kind.
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

    /// The kernels' format, if they have one for it.
    pub fn format(&self) -> Option<Format> {
        self.kind.format()
    }
}
