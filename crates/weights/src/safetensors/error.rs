//! Errors of a folder of safetensors.

use crate::ConfigError;
use std::path::{Path, PathBuf};

/// Why a folder of safetensors was rejected. Each error names the file and the place in the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", file.display())]
pub struct SafetensorsError {
    file: PathBuf,
    what: What,
}

/// An error in a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum What {
    /// An error of the operating system.
    #[error(transparent)]
    Io(std::io::Error),
    /// The file is not JSON, or has an unexpected shape.
    #[error(transparent)]
    Json(serde_json::Error),
    /// A size or count beyond its bound.
    #[error("{field} is {found}, at most {most} is possible")]
    Bound {
        field: &'static str,
        found: u64,
        most: u64,
    },
    /// A field of `config.json`.
    #[error("`{field}` {why}")]
    Field { field: String, why: String },
    /// A tensor.
    #[error("tensor `{name}` {why}")]
    Tensor { name: String, why: String },
    /// The file as a whole.
    #[error("{0}")]
    File(String),
    /// `config.json` does not describe a supported decoder.
    #[error(transparent)]
    Config(ConfigError),
}

impl SafetensorsError {
    pub(super) fn new(file: &Path, what: What) -> Self {
        Self {
            file: file.to_owned(),
            what,
        }
    }

    pub(super) fn io(file: &Path) -> impl Fn(std::io::Error) -> Self {
        move |why| Self::new(file, What::Io(why))
    }

    pub(super) fn json(file: &Path) -> impl Fn(serde_json::Error) -> Self {
        move |why| Self::new(file, What::Json(why))
    }

    pub(super) fn tensor(file: &Path, name: &str, why: impl Into<String>) -> Self {
        let (name, why) = (name.chars().take(NAME_CHARS).collect(), why.into());
        Self::new(file, What::Tensor { name, why })
    }

    pub(super) fn file(file: &Path, why: impl Into<String>) -> Self {
        Self::new(file, What::File(why.into()))
    }

    /// The rejected file.
    pub fn path(&self) -> &Path {
        &self.file
    }
}

/// Displayed characters of a name.
const NAME_CHARS: usize = 255;

/// Rejects a number beyond a bound.
pub(super) fn bounded(
    file: &Path,
    field: &'static str,
    found: u64,
    most: u64,
) -> Result<u64, SafetensorsError> {
    if found <= most {
        Ok(found)
    } else {
        Err(SafetensorsError::new(
            file,
            What::Bound { field, found, most },
        ))
    }
}
