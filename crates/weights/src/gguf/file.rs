//! An opened GGUF model of one or several files.

use super::elements::elements;
use super::header::Part;
use super::limits::{ENTRY_BYTES, METADATA_ENTRIES_MAX, TENSOR_BYTES, TENSORS_MAX};
use super::metadata::MetadataEntry;
use super::split::{self, SplitKeys, SplitName};
use super::tensor::Record;
use super::{Array, Elements, FromValue, GgufError, Source, TensorInfo, Value};
use crate::file_stamp::FileStamp;
use std::path::Path;

const _: () = {
    assert!(size_of::<MetadataEntry>() + 4 <= ENTRY_BYTES);
    assert!(size_of::<Record>() + 8 + 4 <= TENSOR_BYTES);
    let sum = METADATA_ENTRIES_MAX as usize * ENTRY_BYTES + 2 * TENSORS_MAX as usize * TENSOR_BYTES;
    assert!(sum <= 35 << 20);
};

/// An opened and checked GGUF. Returned values are borrowed from the mapped file.
#[derive(Debug)]
pub struct Gguf {
    /// Several parts for a split model. Metadata comes from the first part.
    parts: Vec<Part>,
    /// (part, index in the part) of all tensors, sorted by name.
    by_name: Vec<(u16, u32)>,
}

impl Gguf {
    /// Maps and checks a file. For a split model any part may be given; the other parts are expected in the
    /// same folder.
    ///
    /// # Errors
    /// The fault of the file, with the offset; see [`GgufError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let open = || {
            let part = Part::read(Source::map(path)?)?;
            match SplitKeys::of(&part)? {
                Some(keys) => split::open_all(path, part, keys),
                None => Ok(vec![part]),
            }
        };
        Self::join(open().map_err(|error| naming(error, path))?).map_err(|(part, error)| {
            let split = SplitName::parse(path).filter(|name| part < name.count);
            error.in_file(&split.map_or(path.to_owned(), |name| name.path(part)))
        })
    }

    /// Checks bytes in memory: `Vec<u8>` or `&'static [u8]`.
    ///
    /// # Errors
    /// As [`Gguf::open`]; a single part of a split model is rejected.
    pub fn from_bytes(source: impl Into<Source>) -> Result<Self, GgufError> {
        let part = Part::read(source.into())?;
        if let Some(keys) = SplitKeys::of(&part)? {
            let why = format!(
                "bytes are part {} of {}",
                u32::from(keys.part) + 1,
                keys.count
            );
            return Err(GgufError::Split { why });
        }
        Self::join(vec![part]).map_err(|(_, error)| error)
    }

    /// Joins the parts to a model; an error comes with the number of its part.
    fn join(parts: Vec<Part>) -> Result<Self, (u16, GgufError)> {
        let mut by_name = Vec::with_capacity(parts.iter().map(|part| part.tensors.len()).sum());
        for (number, part) in parts.iter().enumerate() {
            by_name.extend((0..part.tensors.len() as u32).map(|at| (number as u16, at)));
        }
        by_name.sort_by(|a, b| name_at(&parts, *a).cmp(name_at(&parts, *b)));
        for pair in by_name.windows(2) {
            if name_at(&parts, pair[0]) == name_at(&parts, pair[1]) {
                let (part, at) = pair[1];
                let name = String::from_utf8_lossy(name_at(&parts, pair[1])).into_owned();
                let offset = parts[part as usize].tensors[at as usize].info_at;
                return Err((part, GgufError::DuplicateTensor { name, offset }));
            }
        }
        Ok(Self { parts, by_name })
    }

    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.parts[0].version
    }

    /// Alignment of tensor data (in the first part).
    pub fn alignment(&self) -> u64 {
        self.parts[0].alignment
    }

    /// Number of files.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.parts
            .iter()
            .map(|part| part.bytes().len() as u64)
            .sum()
    }

    /// The stamps of all files; `None` for bytes that are in no file.
    pub(crate) fn stamps(&self) -> Option<Vec<FileStamp>> {
        self.parts
            .iter()
            .map(|part| part.source().stamp())
            .collect()
    }

    /// Whether no file was written to since it was opened.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.parts.iter().all(|part| part.source().is_unchanged())
    }
}

/// Metadata.
impl Gguf {
    /// All keys and values, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.parts[0].metadata.iter(self.parts[0].bytes())
    }

    /// Number of keys.
    pub fn metadata_len(&self) -> usize {
        self.parts[0].metadata.len()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let part = &self.parts[0];
        part.metadata.get(part.bytes(), key).map(|(value, _)| value)
    }

    /// The value of a key as a `T`; `None` for a missing key.
    ///
    /// # Errors
    /// [`GgufError::WrongType`], [`GgufError::OutOfRange`], [`GgufError::NotUtf8`].
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        T::from_value(&value)
            .map(Some)
            .map_err(|mismatch| mismatch.at(key, T::EXPECTED, &value))
    }

    /// The value of a key as a `T`.
    ///
    /// # Errors
    /// As [`Gguf::find`], and [`GgufError::MissingKey`].
    pub fn need<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.find(key)?.ok_or_else(|| GgufError::MissingKey {
            key: key.to_owned(),
        })
    }

    /// The elements of an array, each as a `T` (`u32`, `f32`, `bool`, `Text`, ...); `None` for a missing key.
    ///
    /// # Errors
    /// As [`Gguf::find`], for the array or for one of its elements.
    pub fn find_array<'a, T: FromValue<'a>>(
        &'a self,
        key: &str,
    ) -> Result<Option<Elements<'a, T>>, GgufError> {
        self.find::<Array<'a>>(key)?
            .map(|array| elements(key, array))
            .transpose()
    }

    /// The elements of an array, each as a `T`.
    ///
    /// # Errors
    /// As [`Gguf::find_array`], and [`GgufError::MissingKey`].
    pub fn array<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Elements<'a, T>, GgufError> {
        self.find_array(key)?.ok_or_else(|| GgufError::MissingKey {
            key: key.to_owned(),
        })
    }
}

/// Tensors.
impl Gguf {
    /// All tensors, in file order, part after part.
    pub fn tensors(&self) -> impl Iterator<Item = TensorInfo<'_>> {
        self.parts.iter().enumerate().flat_map(|(number, part)| {
            (0..part.tensors.len()).filter_map(move |at| part.tensor(at, number))
        })
    }

    /// Number of tensors.
    pub fn tensors_len(&self) -> usize {
        self.by_name.len()
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<TensorInfo<'_>> {
        let at = self
            .by_name
            .binary_search_by(|&at| name_at(&self.parts, at).cmp(name.as_bytes()))
            .ok()?;
        let (part, at) = self.by_name[at];
        self.parts[part as usize].tensor(at as usize, part as usize)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`GgufError::MissingTensor`].
    pub fn need_tensor(&self, name: &str) -> Result<TensorInfo<'_>, GgufError> {
        self.tensor(name).ok_or_else(|| GgufError::MissingTensor {
            name: name.to_owned(),
        })
    }
}

/// Memory of the mapping. All calls are advice: they cannot fail, and do nothing for bytes that are not
/// mapped.
impl Gguf {
    /// Advises the system that the files will be read once from front to back.
    pub fn advise_sequential(&self) {
        for part in &self.parts {
            part.source().sequential();
        }
    }

    /// Advises the system to read a tensor ahead.
    pub fn will_need(&self, tensor: &TensorInfo<'_>) {
        self.parts[tensor.part].source().will_need(range_of(tensor));
    }

    /// Releases the memory of a packed tensor, so that the original does not stay in memory. A later access
    /// reads the file again.
    pub fn release(&self, tensor: &TensorInfo<'_>) {
        self.parts[tensor.part].source().release(range_of(tensor));
    }

    /// Releases the memory of the whole mapping.
    pub fn release_pages(&self) {
        for part in &self.parts {
            part.source().release(0..part.bytes().len());
        }
    }
}

fn range_of(tensor: &TensorInfo<'_>) -> std::ops::Range<usize> {
    let start = tensor.offset as usize;
    start..start + tensor.bytes.len()
}

fn name_at(parts: &[Part], (part, at): (u16, u32)) -> &[u8] {
    let part = &parts[part as usize];
    &part.bytes()[part.tensors[at as usize].name.clone()]
}

/// Adds the path, unless the error already names another part.
fn naming(error: GgufError, path: &Path) -> GgufError {
    match error {
        GgufError::InFile { .. } => error,
        other => other.in_file(path),
    }
}
