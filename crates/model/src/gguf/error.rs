//! Why a GGUF file was refused, or a question to it has no answer.

use super::kind::TensorKind;
use super::value_kind::ValueKind;
use std::path::{Path, PathBuf};

/// Why a GGUF file was refused, or a question to it has no answer. Offsets are bytes from the
/// beginning of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum GgufError {
    /// The operating system refused.
    Io {
        /// What was being done.
        doing: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
    /// Another error, and the file in which it was found.
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<GgufError>,
    },
    /// The file does not begin with `GGUF`.
    NotGguf {
        /// What it begins with.
        magic: [u8; 4],
    },
    /// A version other than 2 and 3.
    Version(u32),
    /// Written for a machine of the other byte order.
    BigEndian {
        /// Its version, in our byte order.
        version: u32,
    },
    /// The file ends inside a field.
    Truncated {
        /// Which field.
        field: &'static str,
        /// Where it begins.
        offset: u64,
        /// Bytes it needs.
        needs: u64,
        /// Bytes there are.
        left: u64,
    },
    /// A size, count or number beyond its bound.
    Limit {
        /// Which field.
        field: &'static str,
        /// Where it stands.
        offset: u64,
        /// What it says.
        value: u64,
        /// The most it may say.
        max: u64,
    },
    /// A field that makes no sense.
    Invalid {
        /// Which field.
        field: &'static str,
        /// Where it stands.
        offset: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The same key twice.
    DuplicateKey {
        /// The key.
        key: String,
        /// Where the second one stands.
        offset: u64,
    },
    /// Two tensors of the same name.
    DuplicateTensor {
        /// The name.
        name: String,
        /// Where the second one's info stands.
        offset: u64,
    },
    /// A tensor whose shape, kind or place is impossible.
    Tensor {
        /// Its name.
        name: String,
        /// Where its info stands.
        offset: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Two tensors share bytes.
    Overlap {
        /// The one that begins first.
        first: String,
        /// The one that begins inside it.
        second: String,
        /// Where the second begins.
        offset: u64,
    },
    /// The parts of a split file do not belong together.
    Split {
        /// What is wrong.
        why: String,
    },
    /// A key that is needed and not there.
    MissingKey {
        /// The key.
        key: String,
    },
    /// A value of another type than was asked for.
    WrongType {
        /// The key.
        key: String,
        /// What was asked for.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A number that does not fit the type that was asked for.
    OutOfRange {
        /// The key.
        key: String,
        /// What was asked for.
        expected: &'static str,
        /// The number that is there.
        found: String,
    },
    /// A string that was asked for as text and is not UTF-8.
    NotUtf8 {
        /// The key.
        key: String,
    },
    /// A tensor that is needed and not there.
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor that is needed and stored in a way the kernels do not know.
    UnsupportedKind {
        /// The tensor.
        tensor: String,
        /// How it is stored.
        kind: TensorKind,
    },
}

impl GgufError {
    /// Says in which file.
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

    /// What a question to a file that is in order was answered.
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
