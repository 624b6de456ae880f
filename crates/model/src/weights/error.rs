//! Why a model could not be loaded.

use crate::config::ConfigError;
use crate::gguf::TensorKind;
use kernels::{KvError, PackError};

/// Why a model could not be loaded. Each names the key, tensor or option.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LoadError {
    /// The metadata does not describe a decoder that this crate runs.
    Config(ConfigError),
    /// A tensor the decoder needs is not in the file.
    Missing {
        /// Its name.
        tensor: String,
    },
    /// A tensor has another shape than the metadata implies.
    Shape {
        /// Its name.
        tensor: String,
        /// Wanted dims, in ggml's order (columns, rows).
        wanted: Vec<u64>,
        /// Found dims.
        found: Vec<u64>,
    },
    /// A tensor is stored in a way that the decoder cannot read.
    Kind {
        /// Its name.
        tensor: String,
        /// How it is stored.
        found: TensorKind,
        /// What could be read.
        wanted: &'static str,
    },
    /// A tensor's bytes could not be packed.
    Pack {
        /// Its name.
        tensor: String,
        /// Why.
        error: PackError,
    },
    /// A norm, bias or factor is infinite, not a number, or a factor is zero.
    Value {
        /// The tensor's name.
        tensor: String,
        /// Which element.
        index: usize,
    },
    /// The file has a tensor that this decoder would ignore; running without it would compute
    /// something else than the file means.
    Unused {
        /// Its name.
        tensor: String,
    },
    /// An option is outside its bounds.
    Option {
        /// Its name.
        name: &'static str,
        /// What was given.
        given: usize,
        /// The least that is accepted.
        least: usize,
        /// The most that is accepted.
        most: usize,
    },
    /// The KV cache could not be made.
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
