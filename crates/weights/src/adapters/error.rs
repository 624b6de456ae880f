//! Errors of an adapter's file.

use std::path::Path;

/// Why a file is not an adapter of the model: one line with the file, and the tensor or field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("adapter {file}: {why}")]
pub struct AdapterError {
    file: String,
    why: String,
}

impl AdapterError {
    pub(crate) fn new(file: &Path, why: impl Into<String>) -> Self {
        let (file, why) = (file.display().to_string(), why.into());
        // Some reasons begin with the file.
        let bare = why
            .strip_prefix(&file)
            .and_then(|rest| rest.strip_prefix(": "));
        let why = bare.map(str::to_owned).unwrap_or(why);
        Self { file, why }
    }

    /// An error of one tensor.
    pub(crate) fn tensor(file: &Path, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(file, format!("tensor `{name}` {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_named_once() {
        let path = Path::new("a/b.gguf");
        for why in ["a/b.gguf: truncated", "truncated"] {
            let shown = AdapterError::new(path, why).to_string();
            assert_eq!(shown, "adapter a/b.gguf: truncated");
        }
    }
}
