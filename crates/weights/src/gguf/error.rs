//! Errors of GGUF files and of metadata lookups.

use super::kind::TensorKind;
use super::value_kind::ValueKind;
use std::path::{Path, PathBuf};

/// Why a GGUF file was rejected or a lookup failed. Offsets are bytes from the beginning of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// An error of the operating system.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another error, with the file.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        source: Box<GgufError>,
    },
    /// The file does not begin with `GGUF`.
    #[error("not a GGUF file: begins with \"{}\" instead of \"GGUF\"", magic.escape_ascii())]
    NotGguf {
        /// The first bytes of the file.
        magic: [u8; 4],
    },
    /// A version other than 2 and 3.
    #[error("GGUF version {} is not read, only 2 and 3{}", .0, lengths_hint(*.0))]
    Version(u32),
    /// Written for a machine of the other byte order.
    #[error("a big-endian GGUF (version {version}) is not read")]
    BigEndian {
        /// The version, in little-endian order.
        version: u32,
    },
    /// The file ends inside a field.
    #[error("truncated at byte {offset}: {field} needs {needs} bytes, {left} are left")]
    Truncated {
        /// Which field.
        field: &'static str,
        /// Offset of the field.
        offset: u64,
        /// Bytes of the field.
        needs: u64,
        /// Bytes left.
        left: u64,
    },
    /// A size, count or number beyond its bound.
    #[error("{field} at byte {offset} is {value}, at most {max} is possible")]
    Limit {
        /// Which field.
        field: &'static str,
        /// Offset of the field.
        offset: u64,
        /// The value.
        value: u64,
        /// The largest accepted value.
        max: u64,
    },
    /// An invalid field.
    #[error("{field} at byte {offset}: {why}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// Offset of the field.
        offset: u64,
        /// The fault of the field.
        why: String,
    },
    /// A duplicate key.
    #[error("key `{key}` stands a second time at byte {offset}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Offset of the second occurrence.
        offset: u64,
    },
    /// Two tensors with one name.
    #[error("tensor `{name}` stands a second time at byte {offset}")]
    DuplicateTensor {
        /// The name.
        name: String,
        /// Offset of the second tensor info.
        offset: u64,
    },
    /// A tensor with an impossible shape, kind or offset.
    #[error("tensor `{name}` (info at byte {offset}): {why}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// Offset of the tensor info.
        offset: u64,
        /// The fault of the tensor.
        why: String,
    },
    /// Two tensors share bytes.
    #[error("tensor `{second}` begins at byte {offset}, inside tensor `{first}`")]
    Overlap {
        /// The tensor with the lower offset.
        first: String,
        /// The tensor that begins inside the first.
        second: String,
        /// Offset of the second tensor.
        offset: u64,
    },
    /// Inconsistent parts of a split file.
    #[error("split file: {why}")]
    Split {
        /// The reason.
        why: String,
    },
    /// A required key is missing.
    #[error("key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// The value has another type than requested.
    #[error("key `{key}`: expected {expected}, found {found}")]
    WrongType {
        /// The key.
        key: String,
        /// The requested type.
        expected: &'static str,
        /// The type of the value.
        found: String,
    },
    /// A number does not fit the requested type.
    #[error("key `{key}`: {found} does not fit {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The requested type.
        expected: &'static str,
        /// The number.
        found: String,
    },
    /// A string requested as text is not UTF-8.
    #[error("key `{key}`: the string is not UTF-8")]
    NotUtf8 {
        /// The key.
        key: String,
    },
    /// A required tensor is missing.
    #[error("tensor `{name}` is missing")]
    MissingTensor {
        /// Name of the tensor.
        name: String,
    },
    /// A required tensor has a kind that kernels do not support.
    #[error("tensor `{tensor}` is stored as {kind}, which is not supported")]
    UnsupportedKind {
        /// The tensor.
        tensor: String,
        /// The tensor's kind.
        kind: TensorKind,
    },
}

impl GgufError {
    /// This error with the file's path.
    pub(super) fn in_file(self, path: &Path) -> Self {
        Self::InFile {
            path: path.to_owned(),
            source: Box::new(self),
        }
    }

    pub(super) fn wrong_type(key: &str, expected: &'static str, found: ValueKind) -> Self {
        Self::WrongType {
            key: key.to_owned(),
            expected,
            found: found.to_string(),
        }
    }
}

/// Advice for a file of version 1.
fn lengths_hint(version: u32) -> &'static str {
    if version == 1 {
        " (version 1 has 32-bit lengths; convert the file again)"
    } else {
        ""
    }
}
