//! Files of a model: a GGUF, complete or split, or a folder of safetensors, behind one interface.

use crate::config::state_head::SCORES;
use crate::encoder::EncoderConfig;
use crate::file_stamp::FileStamp;
use crate::gguf::Gguf;
use crate::safetensors::Safetensors;
use crate::tensor_entry::TensorEntry;
use crate::vision::{EmbeddedTower, VisionConfig, is_of_images};
use crate::{Config, ConfigError, LoadError};
use kernels::Pool;
use std::borrow::Cow;

/// Opened and checked files of a model.
#[derive(Debug)]
pub enum ModelFiles {
    /// One GGUF, or all parts of a split GGUF.
    Gguf(Gguf),
    /// `config.json` and safetensors.
    Safetensors(Safetensors),
    /// A tower inside of a text model's GGUF.
    Embedded(EmbeddedTower),
}

impl ModelFiles {
    /// Keys and values. For safetensors, the keys of an equivalent GGUF except the tokenizer.
    pub fn metadata(&self) -> &Gguf {
        match self {
            Self::Gguf(gguf) => gguf,
            Self::Safetensors(safetensors) => safetensors.metadata(),
            Self::Embedded(tower) => tower.metadata(),
        }
    }

    /// The described decoder; see [`Config::from_gguf`].
    ///
    /// # Errors
    /// As for [`Config::from_gguf`]. For safetensors, errors name fields of `config.json`.
    pub fn config(&self, context_max: Option<usize>) -> Result<Config, ConfigError> {
        match self {
            Self::Gguf(gguf) => Config::from_gguf(gguf, context_max),
            Self::Safetensors(safetensors) => safetensors.config(context_max),
            Self::Embedded(tower) => Config::from_gguf(tower.metadata(), context_max),
        }
    }

    /// The configuration of the tower in these files.
    ///
    /// # Errors
    /// As for [`VisionConfig::from_gguf`], with the names of keys or fields in the files.
    pub fn tower_config(&self) -> Result<VisionConfig, ConfigError> {
        match self {
            Self::Gguf(gguf) => VisionConfig::from_gguf(gguf),
            Self::Safetensors(safetensors) => safetensors.tower_config(),
            Self::Embedded(tower) => tower.config(),
        }
    }

    /// Whether there are tensors of a tower of images.
    pub fn has_tower_tensors(&self) -> bool {
        let tensors = self.tensors();
        tensors.iter().any(|tensor| is_of_images(tensor.name))
    }

    /// Bytes of all files with weights.
    pub fn file_bytes(&self) -> u64 {
        match self {
            Self::Gguf(gguf) => gguf.file_bytes(),
            Self::Safetensors(safetensors) => safetensors.file_bytes(),
            Self::Embedded(tower) => tower.gguf().file_bytes(),
        }
    }

    /// The stamps of all files that decide the weights, from before anything was read of them; `None` for a model that is in no
    /// file.
    pub fn stamps(&self) -> Option<Vec<FileStamp>> {
        match self {
            Self::Gguf(gguf) => gguf.stamps(),
            Self::Safetensors(safetensors) => safetensors.stamps(),
            Self::Embedded(tower) => tower.gguf().stamps(),
        }
    }

    /// Whether no file was written to since it was opened: the weights can be read once more. A file that was renamed, removed
    /// or replaced is still there for the program that has opened it.
    pub fn are_unchanged(&self) -> bool {
        match self {
            Self::Gguf(gguf) => gguf.is_unchanged(),
            Self::Safetensors(safetensors) => safetensors.is_unchanged(),
            Self::Embedded(tower) => tower.gguf().is_unchanged(),
        }
    }

    /// All tensors.
    pub fn tensors(&self) -> Vec<TensorEntry<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.tensors().map(|tensor| (&tensor).into()).collect(),
            Self::Safetensors(safetensors) => safetensors.entries().collect(),
            Self::Embedded(tower) => tower.entries().collect(),
        }
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<TensorEntry<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.tensor(name).as_ref().map(Into::into),
            Self::Safetensors(safetensors) => safetensors.entry(name),
            Self::Embedded(tower) => tower.entry(name),
        }
    }

    /// Entries of what an encoder gives of a text: of a hidden state, or the scores of a classification head.
    pub fn hidden_dim(&self, encoder: &EncoderConfig) -> usize {
        if encoder.ranks {
            self.tensor(SCORES).map_or(0, |scores| scores.rows())
        } else {
            encoder.dim
        }
    }

    /// The bytes of a tensor as in the file, before any conversion; empty for an unknown tensor.
    pub fn stored_bytes(&self, name: &str) -> Cow<'_, [u8]> {
        match self {
            Self::Gguf(gguf) => Cow::Borrowed(gguf.tensor(name).map_or(&[], |tensor| tensor.bytes)),
            Self::Safetensors(safetensors) => safetensors.stored_bytes(name),
            Self::Embedded(tower) => tower.read(name),
        }
    }

    /// The bytes of a tensor in its kind; empty for an unknown tensor.
    pub(crate) fn read(&self, name: &str, pool: &mut Pool) -> Result<Cow<'_, [u8]>, LoadError> {
        match self {
            Self::Gguf(gguf) => {
                let bytes = gguf.tensor(name).map(|tensor| tensor.bytes);
                Ok(Cow::Borrowed(bytes.unwrap_or_default()))
            }
            Self::Safetensors(safetensors) => safetensors.read(name, pool),
            Self::Embedded(_) => Ok(self.stored_bytes(name)),
        }
    }

    /// The name of a tensor in its file, for errors.
    pub(crate) fn label(&self, name: &str) -> String {
        match self {
            Self::Gguf(_) => name.to_owned(),
            Self::Safetensors(safetensors) => safetensors.label(name),
            Self::Embedded(tower) => tower.label(name),
        }
    }

    /// Releases the memory of a packed tensor.
    pub(crate) fn release(&self, name: &str) {
        match self {
            Self::Gguf(gguf) => {
                if let Some(tensor) = gguf.tensor(name) {
                    gguf.release(&tensor);
                }
            }
            Self::Safetensors(safetensors) => safetensors.release(name),
            Self::Embedded(tower) => {
                if let Some(tensor) = tower.stored(name) {
                    tower.gguf().release(&tensor);
                }
            }
        }
    }
}

impl From<EmbeddedTower> for ModelFiles {
    fn from(tower: EmbeddedTower) -> Self {
        Self::Embedded(tower)
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
