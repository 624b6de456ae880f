//! A model's files: a GGUF, whole or split, or a folder of safetensors. The rest of the house asks
//! them the same questions.

use crate::gguf::Gguf;
use crate::safetensors::Safetensors;
use crate::tensor_entry::TensorEntry;
use crate::{Config, ConfigError, LoadError};
use kernels::Pool;
use std::borrow::Cow;

/// A model's files, open and checked.
#[derive(Debug)]
pub enum ModelFiles {
    /// One GGUF, or the parts of a split one.
    Gguf(Gguf),
    /// `config.json` and its safetensors.
    Safetensors(Safetensors),
}

impl ModelFiles {
    /// Keys and values. Safetensors have those that a GGUF of the same model would have, but its
    /// tokenizer.
    pub fn metadata(&self) -> &Gguf {
        match self {
            Self::Gguf(gguf) => gguf,
            Self::Safetensors(safetensors) => safetensors.metadata(),
        }
    }

    /// The decoder they describe; see [`Config::from_gguf`].
    ///
    /// # Errors
    /// As there. Where there is a `config.json`, errors name its fields.
    pub fn config(&self, context_max: Option<usize>) -> Result<Config, ConfigError> {
        match self {
            Self::Gguf(gguf) => Config::from_gguf(gguf, context_max),
            Self::Safetensors(safetensors) => safetensors.config(context_max),
        }
    }

    /// Bytes of all files with weights.
    pub fn file_bytes(&self) -> u64 {
        match self {
            Self::Gguf(gguf) => gguf.file_bytes(),
            Self::Safetensors(safetensors) => safetensors.file_bytes(),
        }
    }

    /// All tensors.
    pub fn tensors(&self) -> Vec<TensorEntry<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.tensors().map(|tensor| entry(&tensor)).collect(),
            Self::Safetensors(safetensors) => safetensors.entries().collect(),
        }
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<TensorEntry<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.tensor(name).as_ref().map(entry),
            Self::Safetensors(safetensors) => safetensors.entry(name),
        }
    }

    /// The bytes of a tensor, as its kind says; none of one that there is not.
    pub(crate) fn read(&self, name: &str, pool: &mut Pool) -> Result<Cow<'_, [u8]>, LoadError> {
        match self {
            Self::Gguf(gguf) => {
                let bytes = gguf.tensor(name).map(|tensor| tensor.bytes);
                Ok(Cow::Borrowed(bytes.unwrap_or_default()))
            }
            Self::Safetensors(safetensors) => safetensors.read(name, pool),
        }
    }

    /// What a tensor is called where it lies, for errors.
    pub(crate) fn label(&self, name: &str) -> String {
        match self {
            Self::Gguf(_) => name.to_owned(),
            Self::Safetensors(safetensors) => safetensors.label(name),
        }
    }

    /// Gives back the memory of a tensor that has been packed.
    pub(crate) fn release(&self, name: &str) {
        match self {
            Self::Gguf(gguf) => {
                if let Some(tensor) = gguf.tensor(name) {
                    gguf.release(&tensor);
                }
            }
            Self::Safetensors(safetensors) => safetensors.release(name),
        }
    }
}

fn entry<'a>(tensor: &crate::gguf::TensorInfo<'a>) -> TensorEntry<'a> {
    TensorEntry {
        name: tensor.name,
        dims: tensor.dims,
        kind: tensor.kind,
        bytes: tensor.bytes.len() as u64,
    }
}

impl From<Gguf> for ModelFiles {
    fn from(gguf: Gguf) -> Self {
        Self::Gguf(gguf)
    }
}

impl From<Safetensors> for ModelFiles {
    fn from(safetensors: Safetensors) -> Self {
        Self::Safetensors(safetensors)
    }
}
