//! One safetensors file: eight bytes of length, a JSON header with tensors, the tensors' bytes.

use super::SafetensorsError;
use super::error::{What, bounded};
use super::limits::{DIMS_MAX, HEADER_BYTES_MAX, TENSOR_NAME_BYTES_MAX, TENSORS_MAX};
use crate::gguf::Source;
use kernels::Format;
use serde::Deserialize;
use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of the length at the beginning of a file.
const LENGTH_BYTES: usize = 8;
/// The only name that is not a tensor.
const METADATA: &str = "__metadata__";

/// A mapped file and its tensors.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) source: Source,
    /// In the order of their byte ranges.
    pub(super) entries: Vec<StoredTensor>,
}

/// A tensor of a file.
#[derive(Debug)]
pub(super) struct StoredTensor {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Stored shape: the length of a row comes last.
    pub(super) shape: TensorShape,
    /// Byte range in the file.
    pub(super) bytes: Range<usize>,
}

/// A shape of at most [`DIMS_MAX`] dimensions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TensorShape {
    dims: [u64; DIMS_MAX],
    len: u8,
}

/// Storage format of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    F16,
    BF16,
    /// Another kind of the format with the bits of one element, or an unknown kind.
    Other(&'static str, Option<u64>),
}

/// A tensor's entry in the header.
#[derive(Deserialize)]
#[serde(expecting = "an object with dtype, shape and data_offsets")]
pub(super) struct HeaderEntry {
    dtype: String,
    shape: TensorShape,
    data_offsets: [u64; 2],
}

impl Shard {
    /// Maps a file and checks its header.
    pub(super) fn open(path: &Path) -> Result<Self, SafetensorsError> {
        let source = Source::map(path).map_err(|why| match why {
            crate::gguf::GgufError::Io { source, .. } => {
                SafetensorsError::new(path, What::Io(source))
            }
            other => SafetensorsError::file(path, other.to_string()),
        })?;
        let bytes = source.bytes();
        let header = header(path, bytes)?;
        let told: Header = serde_json::from_slice(header).map_err(SafetensorsError::json(path))?;
        let data_at = LENGTH_BYTES + header.len();
        let mut entries = told
            .0
            .into_iter()
            .map(|(name, told)| told.place(path, name, data_at, bytes.len()))
            .collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(|entry| (entry.bytes.start, entry.bytes.end));
        for pair in entries.windows(2) {
            if pair[0].bytes.end > pair[1].bytes.start {
                let why = format!("begins inside tensor `{}`", pair[0].name);
                return Err(SafetensorsError::tensor(path, &pair[1].name, why));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            source,
            entries,
        })
    }
}

/// The header's text.
fn header<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a [u8], SafetensorsError> {
    let short = |needs: u64| {
        let has = bytes.len();
        let why = format!("truncated: the header needs {needs} bytes, the file has {has}");
        SafetensorsError::file(path, why)
    };
    let (length, rest) = bytes
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| short(LENGTH_BYTES as u64))?;
    let length = u64::from_le_bytes(*length);
    let length = bounded(path, "the header's length", length, HEADER_BYTES_MAX)?;
    rest.get(..length as usize)
        .ok_or_else(|| short(length + LENGTH_BYTES as u64))
}

impl HeaderEntry {
    fn place(
        self,
        path: &Path,
        name: String,
        data_at: usize,
        file_bytes: usize,
    ) -> Result<StoredTensor, SafetensorsError> {
        let wrong = |why: String| SafetensorsError::tensor(path, &name, why);
        let kind = Kind::named(&self.dtype);
        let [begin, end] = self.data_offsets;
        let room = (file_bytes - data_at) as u64;
        if begin > end || end > room {
            let why = format!(
                "has `data_offsets` {begin} to {end}, must rise and end at {room}, where the file does"
            );
            return Err(wrong(why));
        }
        let shape = self.shape.as_slice();
        let needs = kind.bits().map(|bits| {
            let elements = shape
                .iter()
                .try_fold(1u64, |all, &dim| all.checked_mul(dim));
            elements.and_then(|elements| elements.checked_mul(bits))
        });
        match needs {
            Some(Some(bits)) if bits.div_ceil(8) == end - begin => {}
            None => {}
            _ => {
                let why = format!(
                    "has {} bytes, which are not {} of shape {shape:?}",
                    end - begin,
                    kind.name()
                );
                return Err(wrong(why));
            }
        }
        Ok(StoredTensor {
            kind,
            shape: self.shape,
            bytes: data_at + begin as usize..data_at + end as usize,
            name,
        })
    }
}

impl Kind {
    fn named(dtype: &str) -> Self {
        /// Other kinds of the format, with the bits of an element.
        const OTHERS: &[(&str, u64)] = &[
            ("BOOL", 8),
            ("U8", 8),
            ("I8", 8),
            ("F8_E5M2", 8),
            ("F8_E4M3", 8),
            ("F8_E8M0", 8),
            ("I16", 16),
            ("U16", 16),
            ("I32", 32),
            ("U32", 32),
            ("F64", 64),
            ("I64", 64),
            ("U64", 64),
            ("C64", 64),
        ];
        match dtype {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::BF16,
            other => match OTHERS.iter().find(|(name, _)| *name == other) {
                Some((name, bits)) => Self::Other(name, Some(*bits)),
                None => Self::Other("a kind that is not known here", None),
            },
        }
    }

    /// Name in the format.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Other(name, _) => name,
        }
    }

    /// The kernels' format.
    pub(super) fn format(self) -> Option<Format> {
        match self {
            Self::F32 => Some(Format::F32),
            Self::F16 => Some(Format::F16),
            Self::BF16 => Some(Format::BF16),
            Self::Other(..) => None,
        }
    }

    fn bits(self) -> Option<u64> {
        match self {
            Self::F32 => Some(32),
            Self::F16 | Self::BF16 => Some(16),
            Self::Other(_, bits) => bits,
        }
    }
}

impl TensorShape {
    pub(super) fn as_slice(&self) -> &[u64] {
        &self.dims[..usize::from(self.len)]
    }

    /// The dimensions in reverse order.
    pub(super) fn reversed(mut self) -> Self {
        self.dims[..usize::from(self.len)].reverse();
        self
    }

    /// The shape with so many fewer of the last dimension.
    pub(super) fn without(mut self, count: u64) -> Self {
        if let Some(last) = self.dims[..usize::from(self.len)].last_mut() {
            *last -= count;
        }
        self
    }

    /// A shape with one dimension.
    pub(super) fn one(len: u64) -> Self {
        Self::of([len])
    }

    /// A shape of at most [`DIMS_MAX`] dimensions.
    pub(super) fn of<const N: usize>(given: [u64; N]) -> Self {
        let mut dims = [0; DIMS_MAX];
        dims[..N].copy_from_slice(&given);
        Self { dims, len: N as u8 }
    }
}

impl<'de> Deserialize<'de> for TensorShape {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = TensorShape;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a shape of at most {DIMS_MAX} dimensions")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<TensorShape, A::Error> {
                let mut dims = TensorShape::default();
                while let Some(dim) = list.next_element()? {
                    let at = usize::from(dims.len);
                    let too_long = || de::Error::invalid_length(at + 1, &self);
                    *dims.dims.get_mut(at).ok_or_else(too_long)? = dim;
                    dims.len += 1;
                }
                Ok(dims)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// All entries of a header, in order.
struct Header(Vec<(String, HeaderEntry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    if name.is_empty() || name.len() > TENSOR_NAME_BYTES_MAX {
                        let why = format_args!(
                            "a tensor's name has {} bytes, must have 1 to {TENSOR_NAME_BYTES_MAX}",
                            name.len()
                        );
                        return Err(de::Error::custom(why));
                    }
                    if entries.len() == TENSORS_MAX {
                        let why = format_args!("more than {TENSORS_MAX} tensors");
                        return Err(de::Error::custom(why));
                    }
                    let told = map
                        .next_value::<HeaderEntry>()
                        .map_err(|why| de::Error::custom(format_args!("tensor `{name}`: {why}")))?;
                    entries.push((name, told));
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
