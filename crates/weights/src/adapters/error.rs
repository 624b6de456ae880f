//! Errors of an adapter's file.

use std::path::Path;

/// Why a file is not an adapter of the model: one line with the file, and the tensor or field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterError {
    file: String,
    why: String,
}

impl AdapterError {
    pub(crate) fn new(file: &Path, why: impl Into<String>) -> Self {
        Self {
            file: file.display().to_string(),
            why: why.into(),
        }
    }

    /// An error of one tensor.
    pub(crate) fn tensor(file: &Path, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(file, format!("tensor `{name}` {why}"))
    }
}

impl std::fmt::Display for AdapterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "adapter {}: {}", self.file, self.why)
    }
}

impl std::error::Error for AdapterError {}
