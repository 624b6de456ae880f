//! Errors of a folder of safetensors.

use crate::ConfigError;
use std::path::{Path, PathBuf};

/// Why a folder of safetensors was rejected. Each error names the file and the place in the file.
#[derive(Debug)]
pub struct SafetensorsError {
    file: PathBuf,
    what: What,
}

/// An error in a file.
#[derive(Debug)]
pub(super) enum What {
    /// An error of the operating system.
    Io(std::io::Error),
    /// The file is not JSON, or has an unexpected shape.
    Json(serde_json::Error),
    /// A size or count beyond its bound.
    Bound {
        field: &'static str,
        found: u64,
        most: u64,
    },
    /// A field of `config.json`.
    Field { field: String, why: String },
    /// A tensor.
    Tensor { name: String, why: String },
    /// The file as a whole.
    File(String),
    /// `config.json` does not describe a supported decoder.
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

impl std::fmt::Display for SafetensorsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        match &self.what {
            What::Io(why) => why.fmt(f),
            What::Json(why) => write!(f, "{why}"),
            What::Bound { field, found, most } => {
                write!(f, "{field} is {found}, at most {most} is possible")
            }
            What::Field { field, why } => write!(f, "`{field}` {why}"),
            What::Tensor { name, why } => write!(f, "tensor `{name}` {why}"),
            What::File(why) => f.write_str(why),
            What::Config(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for SafetensorsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.what {
            What::Io(why) => Some(why),
            What::Json(why) => Some(why),
            What::Config(why) => Some(why),
            _ => None,
        }
    }
}
