//! Errors of loading a model.

use crate::config::ConfigError;
use crate::gguf::TensorKind;
use kernels::{KvError, PackError};

/// Why a model cannot be loaded. Each error names the key, tensor or option.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The metadata does not describe a supported decoder.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A required tensor is missing.
    #[error("tensor `{tensor}` is missing")]
    Missing {
        /// Name of the tensor.
        tensor: String,
    },
    /// A tensor has another shape than the metadata implies.
    #[error("tensor `{tensor}` has shape {found:?}, must have {wanted:?}")]
    Shape {
        /// Name of the tensor.
        tensor: String,
        /// Expected dims, in ggml's order (columns, rows).
        wanted: Vec<u64>,
        /// Dims in the file.
        found: Vec<u64>,
    },
    /// A tensor is stored in an unsupported format.
    #[error("tensor `{tensor}` is stored as {found}, must be {wanted}")]
    Kind {
        /// Name of the tensor.
        tensor: String,
        /// The format in the file.
        found: TensorKind,
        /// Supported formats.
        wanted: &'static str,
    },
    /// A tensor's bytes cannot be packed.
    #[error("tensor `{tensor}`: {error}")]
    Pack {
        /// Name of the tensor.
        tensor: String,
        /// The error.
        error: PackError,
    },
    /// A norm, bias or factor is infinite or not a number, or a factor is zero.
    #[error("tensor `{tensor}`: element {index} is not a usable number")]
    Value {
        /// The tensor's name.
        tensor: String,
        /// Index of the element.
        index: usize,
    },
    /// The file has a tensor that this decoder would ignore; running without the tensor would compute
    /// something else than the file describes.
    #[error("tensor `{tensor}` has no part in this architecture")]
    Unused {
        /// Name of the tensor.
        tensor: String,
    },
    /// An option is outside its bounds.
    #[error("{name} is {given}, must be {least} to {most}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// The given value.
        given: usize,
        /// Smallest accepted value.
        least: usize,
        /// Largest accepted value.
        most: usize,
    },
    /// The KV cache cannot be created.
    #[error(transparent)]
    Kv(#[from] KvError),
}
