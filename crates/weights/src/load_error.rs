//! Errors of loading a model.

use crate::config::ConfigError;
use crate::gguf::TensorKind;
use kernels::{KvError, PackError};

/// Why a model cannot be loaded. Each error names the key, tensor or option.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LoadError {
    /// The metadata does not describe a supported decoder.
    Config(ConfigError),
    /// A required tensor is missing.
    Missing {
        /// Name of the tensor.
        tensor: String,
    },
    /// A tensor has another shape than the metadata implies.
    Shape {
        /// Name of the tensor.
        tensor: String,
        /// Expected dims, in ggml's order (columns, rows).
        wanted: Vec<u64>,
        /// Dims in the file.
        found: Vec<u64>,
    },
    /// A tensor is stored in an unsupported format.
    Kind {
        /// Name of the tensor.
        tensor: String,
        /// The format in the file.
        found: TensorKind,
        /// Supported formats.
        wanted: &'static str,
    },
    /// A tensor's bytes cannot be packed.
    Pack {
        /// Name of the tensor.
        tensor: String,
        /// The error.
        error: PackError,
    },
    /// A norm, bias or factor is infinite or not a number, or a factor is zero.
    Value {
        /// The tensor's name.
        tensor: String,
        /// Index of the element.
        index: usize,
    },
    /// The file has a tensor that this decoder would ignore; running without the tensor would compute
    /// something else than the file describes.
    Unused {
        /// Name of the tensor.
        tensor: String,
    },
    /// An option is outside its bounds.
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
    Kv(KvError),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Missing { tensor } => write!(f, "tensor `{tensor}` is missing"),
            Self::Shape {
                tensor,
                wanted,
                found,
            } => {
                write!(
                    f,
                    "tensor `{tensor}` has shape {found:?}, must have {wanted:?}"
                )
            }
            Self::Kind {
                tensor,
                found,
                wanted,
            } => {
                write!(
                    f,
                    "tensor `{tensor}` is stored as {found}, must be {wanted}"
                )
            }
            Self::Pack { tensor, error } => write!(f, "tensor `{tensor}`: {error}"),
            Self::Value { tensor, index } => {
                write!(
                    f,
                    "tensor `{tensor}`: element {index} is not a usable number"
                )
            }
            Self::Unused { tensor } => {
                write!(f, "tensor `{tensor}` has no part in this architecture")
            }
            Self::Option {
                name,
                given,
                least,
                most,
            } => {
                write!(f, "{name} is {given}, must be {least} to {most}")
            }
            Self::Kv(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<ConfigError> for LoadError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<KvError> for LoadError {
    fn from(error: KvError) -> Self {
        Self::Kv(error)
    }
}
