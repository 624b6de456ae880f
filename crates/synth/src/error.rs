//! Errors of synthetic models.

use kernels::Format;
use weights::gguf::{GgufError, WriteError};
use weights::{ConfigError, LoadError};

/// Why a synthetic model cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// The architecture does not allow the shape.
    #[error("{0}")]
    Shape(String),
    /// The row length is no multiple of the format's block size.
    #[error(
        "rows of {cols} weights are no whole number of {format:?} blocks of {}: choose other sizes, another \
         quantization, or a preset with longer rows (small-...)",
        format.block_weights()
    )]
    Blocks {
        /// Weights in a row.
        cols: u64,
        /// The format.
        format: Format,
    },
    /// The keys do not describe a supported model.
    #[error(transparent)]
    Config(ConfigError),
    /// The tensors are not those of a supported model.
    #[error(transparent)]
    Load(LoadError),
    /// The file with the requested vocabulary has no complete vocabulary.
    #[error("cannot take the vocabulary: {0}")]
    Vocabulary(GgufError),
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
