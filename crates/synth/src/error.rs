//! Errors of synthetic models.

use kernels::Format;
use weights::gguf::{GgufError, WriteError};
use weights::{ConfigError, LoadError};

/// Why a synthetic model cannot be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum SynthError {
    /// The architecture does not allow the shape.
    Shape(String),
    /// The row length is no multiple of the format's block size.
    Blocks {
        /// Weights in a row.
        cols: u64,
        /// The format.
        format: Format,
    },
    /// The keys do not describe a supported model.
    Config(ConfigError),
    /// The tensors are not those of a supported model.
    Load(LoadError),
    /// The file with the requested vocabulary has no complete vocabulary.
    Vocabulary(GgufError),
    /// The file could not be written.
    Write(WriteError),
}

impl std::fmt::Display for SynthError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shape(why) => f.write_str(why),
            Self::Blocks { cols, format } => write!(
                f,
                "rows of {cols} weights are no whole number of {format:?} blocks of {}: choose other sizes, another \
                 quantization, or a preset with longer rows (small-...)",
                format.block_weights()
            ),
            Self::Vocabulary(source) => write!(f, "cannot take the vocabulary: {source}"),
            Self::Config(source) => source.fmt(f),
            Self::Load(source) => source.fmt(f),
            Self::Write(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for SynthError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Vocabulary(source) => Some(source),
            Self::Write(source) => Some(source),
            _ => None,
        }
    }
}

impl From<WriteError> for SynthError {
    fn from(source: WriteError) -> Self {
        Self::Write(source)
    }
}
