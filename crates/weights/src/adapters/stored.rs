//! Halves of low-rank pairs as they are in a file, under the names of GGUF.

use std::path::PathBuf;

/// Which matrix of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfSide {
    /// `(rank, inputs)`.
    A,
    /// `(outputs, rank)`.
    B,
}

/// One matrix of a pair.
pub(crate) struct StoredHalf {
    /// Name in the file.
    pub(crate) name: String,
    /// GGUF's name of the tensor that the pair changes.
    pub(crate) target: String,
    pub(crate) side: HalfSide,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// `(rows, cols)`.
    pub(crate) numbers: Vec<f32>,
}

/// The factor of a pair's product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ScaleRule {
    /// `alpha / rank`; 1 where `alpha` is 0, as in llama.cpp.
    ByRank(f32),
    /// `alpha / sqrt(rank)` (rank-stabilized LoRA).
    ByRoot(f32),
}

impl ScaleRule {
    /// The factor of a pair of this rank.
    pub(crate) fn factor(self, rank: usize) -> f32 {
        match self {
            Self::ByRank(0.0) => 1.0,
            Self::ByRank(alpha) => alpha / rank as f32,
            Self::ByRoot(alpha) => alpha / (rank as f32).sqrt(),
        }
    }
}

/// All halves of a file.
pub(crate) struct StoredAdapter {
    /// The file with the tensors.
    pub(crate) file: PathBuf,
    pub(crate) halves: Vec<StoredHalf>,
    pub(crate) scale: ScaleRule,
}
