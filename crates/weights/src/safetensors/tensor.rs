//! A tensor of safetensors as it would be in a GGUF: name, shape, source of the data, and conversion.

use super::conversion::Change;
use super::gpt_oss::ExpertBlocks;
use super::header::TensorShape;
use crate::gguf::TensorKind;
use crate::tensor_entry::TensorEntry;

/// A tensor and its conversion.
#[derive(Debug)]
pub(super) struct Tensor {
    /// Name in GGUF.
    pub(super) name: String,
    /// Shape in GGUF's order.
    pub(super) dims: TensorShape,
    pub(super) kind: TensorKind,
    pub(super) data: Data,
    pub(super) change: Change,
}

/// Source of a tensor's data.
#[derive(Debug)]
pub(super) enum Data {
    /// An entry of a file.
    Stored { shard: u16, entry: u32 },
    /// Each second element of an entry, from element `first` on.
    EverySecond { place: (u16, u32), first: u8 },
    /// Some rows of an entry.
    Rows { place: (u16, u32), rows: Vec<u32> },
    /// Experts in MXFP4, from two entries.
    Blocks(ExpertBlocks),
    /// Values derived from `config.json`.
    Made(Vec<f32>),
}

impl Tensor {
    pub(super) fn entry(&self) -> TensorEntry<'_> {
        let dims = self.dims.as_slice();
        let elements: u64 = dims.iter().product();
        // Every kind here has blocks, and rows are multiples of blocks.
        let (weights, bytes) = self.kind.block().unwrap_or((1, 0));
        TensorEntry {
            name: &self.name,
            dims,
            kind: self.kind,
            bytes: elements / weights * bytes,
        }
    }
}
