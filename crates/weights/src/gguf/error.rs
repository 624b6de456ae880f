//! Errors of GGUF files and of metadata lookups.

use super::kind::TensorKind;
use super::value_kind::ValueKind;
use std::path::{Path, PathBuf};

/// Why a GGUF file was rejected or a lookup failed. Offsets are bytes from the beginning of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum GgufError {
    /// An error of the operating system.
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another error, with the file.
    InFile {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        source: Box<GgufError>,
    },
    /// The file does not begin with `GGUF`.
    NotGguf {
        /// The first bytes of the file.
        magic: [u8; 4],
    },
    /// A version other than 2 and 3.
    Version(u32),
    /// Written for a machine of the other byte order.
    BigEndian {
        /// The version, in little-endian order.
        version: u32,
    },
    /// The file ends inside a field.
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
    Invalid {
        /// Which field.
        field: &'static str,
        /// Offset of the field.
        offset: u64,
        /// The fault of the field.
        why: String,
    },
    /// A duplicate key.
    DuplicateKey {
        /// The key.
        key: String,
        /// Offset of the second occurrence.
        offset: u64,
    },
    /// Two tensors with one name.
    DuplicateTensor {
        /// The name.
        name: String,
        /// Offset of the second tensor info.
        offset: u64,
    },
    /// A tensor with an impossible shape, kind or offset.
    Tensor {
        /// Name of the tensor.
        name: String,
        /// Offset of the tensor info.
        offset: u64,
        /// The fault of the tensor.
        why: String,
    },
    /// Two tensors share bytes.
    Overlap {
        /// The tensor with the lower offset.
        first: String,
        /// The tensor that begins inside the first.
        second: String,
        /// Offset of the second tensor.
        offset: u64,
    },
    /// Inconsistent parts of a split file.
    Split {
        /// The reason.
        why: String,
    },
    /// A required key is missing.
    MissingKey {
        /// The key.
        key: String,
    },
    /// The value has another type than requested.
    WrongType {
        /// The key.
        key: String,
        /// The requested type.
        expected: &'static str,
        /// The type of the value.
        found: String,
    },
    /// A number does not fit the requested type.
    OutOfRange {
        /// The key.
        key: String,
        /// The requested type.
        expected: &'static str,
        /// The number.
        found: String,
    },
    /// A string requested as text is not UTF-8.
    NotUtf8 {
        /// The key.
        key: String,
    },
    /// A required tensor is missing.
    MissingTensor {
        /// Name of the tensor.
        name: String,
    },
    /// A required tensor has a kind that kernels do not support.
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

    /// Formats errors of lookups in a valid file.
    fn fmt_answer(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MissingKey { key } => write!(f, "key `{key}` is missing"),
            Self::WrongType {
                key,
                expected,
                found,
            } => {
                write!(f, "key `{key}`: expected {expected}, found {found}")
            }
            Self::OutOfRange {
                key,
                expected,
                found,
            } => {
                write!(f, "key `{key}`: {found} does not fit {expected}")
            }
            Self::NotUtf8 { key } => write!(f, "key `{key}`: the string is not UTF-8"),
            Self::MissingTensor { name } => write!(f, "tensor `{name}` is missing"),
            Self::UnsupportedKind { tensor, kind } => {
                write!(
                    f,
                    "tensor `{tensor}` is stored as {kind}, which is not supported"
                )
            }
            refusal => write!(f, "{refusal:?}"),
        }
    }
}

impl std::fmt::Display for GgufError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io { doing, source } => write!(f, "cannot {doing}: {source}"),
            Self::InFile { path, source } => write!(f, "{}: {source}", path.display()),
            Self::NotGguf { magic } => write!(
                f,
                "not a GGUF file: begins with \"{}\" instead of \"GGUF\"",
                magic.escape_ascii()
            ),
            Self::Version(version) => {
                write!(f, "GGUF version {version} is not read, only 2 and 3")?;
                if *version == 1 {
                    f.write_str(" (version 1 has 32-bit lengths; convert the file again)")?;
                }
                Ok(())
            }
            Self::BigEndian { version } => {
                write!(f, "a big-endian GGUF (version {version}) is not read")
            }
            Self::Truncated {
                field,
                offset,
                needs,
                left,
            } => write!(
                f,
                "truncated at byte {offset}: {field} needs {needs} bytes, {left} are left"
            ),
            Self::Limit {
                field,
                offset,
                value,
                max,
            } => {
                write!(
                    f,
                    "{field} at byte {offset} is {value}, at most {max} is possible"
                )
            }
            Self::Invalid { field, offset, why } => write!(f, "{field} at byte {offset}: {why}"),
            Self::DuplicateKey { key, offset } => {
                write!(f, "key `{key}` stands a second time at byte {offset}")
            }
            Self::DuplicateTensor { name, offset } => {
                write!(f, "tensor `{name}` stands a second time at byte {offset}")
            }
            Self::Tensor { name, offset, why } => {
                write!(f, "tensor `{name}` (info at byte {offset}): {why}")
            }
            Self::Overlap {
                first,
                second,
                offset,
            } => write!(
                f,
                "tensor `{second}` begins at byte {offset}, inside tensor `{first}`"
            ),
            Self::Split { why } => write!(f, "split file: {why}"),
            answer => answer.fmt_answer(f),
        }
    }
}

impl std::error::Error for GgufError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::InFile { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
