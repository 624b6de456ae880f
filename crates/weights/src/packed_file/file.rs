//! A packed file that is read.

use super::table::{SectionEntry, read_table};
use super::{CHUNK_BYTES, PackedFileError, PackedKey, SectionShape};
use crate::gguf::Source;
use kernels::{LentMemory, PackedBytes, Pool};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How packed bytes come into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedReading {
    /// Copied into memory of the process, in huge pages where the operating system agrees.
    Copy,
    /// Used in the mapped file, whose pages all processes share.
    Map,
}

/// An opened packed file, whose header and table were checked.
pub struct PackedFile {
    source: Arc<Source>,
    /// By tensor and part.
    sections: Vec<SectionEntry>,
    reading: PackedReading,
}

impl PackedFile {
    /// Maps an opened file and checks header and table.
    ///
    /// # Errors
    /// The file cannot be read, is not as it was written, or has another key.
    pub fn open(
        file: &File,
        key: &PackedKey,
        reading: PackedReading,
    ) -> Result<Self, PackedFileError> {
        let source = Source::map_file(file).map_err(|why| PackedFileError::Io(why.to_string()))?;
        Self::from_source(source, key, reading)
    }

    /// Checks the header and the table of a file.
    ///
    /// # Errors
    /// As [`PackedFile::open`].
    pub fn from_source(
        source: impl Into<Source>,
        key: &PackedKey,
        reading: PackedReading,
    ) -> Result<Self, PackedFileError> {
        let source = source.into();
        let sections = read_table(source.bytes(), key)?;
        Ok(Self {
            source: Arc::new(source),
            sections,
            reading,
        })
    }

    /// Number of sections.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.source.bytes().len() as u64
    }

    /// The bytes of a section, each compared with its checksum; `None` if there is no such section, or a damaged one.
    pub(super) fn take(&self, shape: &SectionShape, pool: &mut Pool) -> Option<PackedBytes> {
        let found = self
            .sections
            .binary_search_by(|entry| entry.shape.place().cmp(&shape.place()));
        let entry = found.ok().map(|at| &self.sections[at])?;
        if entry.shape != *shape {
            return None;
        }
        let bytes = self.source.bytes().get(entry.range.clone())?;
        self.source.will_need(entry.range.clone());
        let is_right = |chunk: usize, bytes: &[u8]| {
            let sum = entry.sums.get(chunk);
            sum.is_some_and(|sum| *sum == crc32fast::hash(bytes))
        };
        if self.reading == PackedReading::Map {
            if !are_right(pool, bytes, is_right) {
                return None;
            }
            let memory: LentMemory = Arc::<Source>::clone(&self.source);
            // Bytes in memory that is not mapped may begin anywhere.
            if let Some(lent) = PackedBytes::lent(memory, entry.range.clone()) {
                return Some(lent);
            }
        }
        let copied = PackedBytes::copied(pool, bytes, CHUNK_BYTES, is_right);
        self.source.release(entry.range.clone());
        copied
    }
}

/// Checks all chunks of a section on all workers.
fn are_right(
    pool: &mut Pool,
    bytes: &[u8],
    is_right: impl Fn(usize, &[u8]) -> bool + Sync,
) -> bool {
    let all = AtomicBool::new(true);
    pool.guided(bytes.len().div_ceil(CHUNK_BYTES), 1, |chunks| {
        for chunk in chunks {
            let start = chunk * CHUNK_BYTES;
            let end = bytes.len().min(start + CHUNK_BYTES);
            if !is_right(chunk, &bytes[start..end]) {
                all.store(false, Ordering::Relaxed);
            }
        }
    });
    all.into_inner()
}
