//! Sections that one load reads from a packed file, and those that it keeps to write one.

use super::PackedFile;
use kernels::{Format, PackedBytes, Pool};
use std::collections::BTreeMap;

/// Identity and shape of a section: `count` matrices `(rows, cols)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectionShape {
    /// Name of the tensor, or of the first of several.
    pub(crate) tensor: String,
    /// Number of the matrix or stack among those of the tensor.
    pub(crate) part: u32,
    pub(crate) format: Format,
    pub(crate) count: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl SectionShape {
    /// Tensor and part, which no two sections of a file share.
    pub(super) fn place(&self) -> (&str, u32) {
        (&self.tensor, self.part)
    }
}

/// A handle of packed bytes, to be written to a file.
#[derive(Clone)]
pub struct PackedSection {
    pub(super) shape: SectionShape,
    pub(super) bytes: PackedBytes,
}

/// The packed matrices of one load: where they come from, and handles of them for a new file.
#[derive(Default)]
pub struct PackedSections {
    file: Option<PackedFile>,
    keeps: bool,
    kept: BTreeMap<(String, u32), PackedSection>,
    read: usize,
    packed: usize,
}

impl PackedSections {
    /// All matrices are packed, and no handle is kept.
    pub fn none() -> Self {
        Self::default()
    }

    /// Matrices come from `file` as far as it has them. With `keeps`, a handle of each is kept.
    pub fn new(file: Option<PackedFile>, keeps: bool) -> Self {
        Self {
            file,
            keeps,
            ..Self::default()
        }
    }

    /// Sections that were read from the file.
    pub fn read(&self) -> usize {
        self.read
    }

    /// Sections that were packed.
    pub fn packed(&self) -> usize {
        self.packed
    }

    /// Whether there was a file, and all matrices came from it.
    pub fn are_read(&self) -> bool {
        self.file.is_some() && self.packed == 0
    }

    /// The kept handles, to be written.
    pub fn into_kept(self) -> Vec<PackedSection> {
        self.kept.into_values().collect()
    }

    /// Whether there is a file.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// The bytes of a section; `None` if the file has no such section, or a damaged one.
    pub(crate) fn take(&mut self, shape: &SectionShape, pool: &mut Pool) -> Option<PackedBytes> {
        let bytes = self.file.as_ref()?.take(shape, pool)?;
        self.read += 1;
        self.insert(shape, || bytes.clone());
        Some(bytes)
    }

    /// Notes a section that was packed.
    pub(crate) fn keep(&mut self, shape: &SectionShape, bytes: impl FnOnce() -> PackedBytes) {
        self.packed += 1;
        self.insert(shape, bytes);
    }

    fn insert(&mut self, shape: &SectionShape, bytes: impl FnOnce() -> PackedBytes) {
        if !self.keeps {
            return;
        }
        let (tensor, part) = shape.place();
        let section = PackedSection {
            shape: shape.clone(),
            bytes: bytes(),
        };
        self.kept.insert((tensor.to_owned(), part), section);
    }
}
