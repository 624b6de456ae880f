//! Storage of a file's bytes: mapped, built into the program, or in memory. The only module of this crate
//! with `unsafe`.
#![allow(unsafe_code)] // memory maps and their advice

use super::GgufError;
use crate::file_stamp::FileStamp;
use memmap2::Mmap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// The bytes of one file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Source {
    /// A file mapped read-only, with the stamp that it had before the first byte was read.
    Mapped(Mmap, FileStamp, File),
    /// Bytes built into the program.
    Static(&'static [u8]),
    /// Bytes held in memory.
    Owned(Vec<u8>),
}

impl Source {
    /// Maps a file.
    ///
    /// The file must not be truncated while mapped (the system would end the program with SIGBUS); changed
    /// contents change the weights but break nothing, since everything read from the mapping is checked when
    /// read.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn map(path: &Path) -> Result<Self, GgufError> {
        let io = |doing| move |source| GgufError::Io { doing, source };
        let meta = std::fs::metadata(path).map_err(io("open the file"))?;
        if !meta.is_file() {
            // Checked before opening: opening a pipe would block until a writer opens the pipe.
            let source = std::io::Error::other("not a regular file");
            return Err(io("map the file")(source));
        }
        let file = File::open(path).map_err(io("open the file"))?;
        Self::map_file(&file)
    }

    /// Maps an opened regular file.
    ///
    /// # Errors
    /// As [`Source::map`].
    pub(crate) fn map_file(file: &File) -> Result<Self, GgufError> {
        let io = |doing| move |source| GgufError::Io { doing, source };
        let meta = file.metadata().map_err(io("open the file"))?;
        if meta.len() == 0 {
            return Ok(Self::Static(&[])); // an empty file cannot be mapped
        }
        let stamp = FileStamp::of(&meta);
        // SAFETY: the mapping is read-only and handed out as bytes; every bit pattern is a valid
        // byte, and nothing unchecked (no `str`, no reference) is derived from its contents.
        let map = unsafe { Mmap::map(file) }.map_err(io("map the file"))?;
        let file = file.try_clone().map_err(io("open the file"))?;
        Ok(Self::Mapped(map, stamp, file))
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map, ..) => map,
            Self::Static(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }

    /// The stamp of a mapped file; `None` for other bytes.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        match self {
            Self::Mapped(_, stamp, _) => Some(*stamp),
            _ => None,
        }
    }

    /// Whether the bytes are those that were mapped: no one has written to the file since. The name of the file may lead to
    /// another one now.
    pub(crate) fn is_unchanged(&self) -> bool {
        match self {
            Self::Mapped(_, then, file) => file.metadata().is_ok_and(|now| {
                let now = FileStamp::of(&now);
                (now.bytes, now.modified_ns) == (then.bytes, then.modified_ns)
            }),
            _ => true,
        }
    }

    /// Advises sequential reading of the whole file. Failure is ignored.
    pub(super) fn sequential(&self) {
        #[cfg(unix)]
        if let Self::Mapped(map, ..) = self {
            _ = map.advise(memmap2::Advice::Sequential);
        }
    }

    /// Advises reading a range ahead. Failure is ignored.
    pub(crate) fn will_need(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Self::Mapped(map, ..) = self {
            _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Releases the memory of a range; a later access reads the file again. No effect on bytes that are not
    /// mapped.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Self::Mapped(map, ..) = self {
            let (start, len) = (range.start, range.len());
            // SAFETY: the mapping is of a file and never written, so dropping its pages loses
            // nothing: the next access reads the same file contents again.
            _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len)
            };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl From<&'static [u8]> for Source {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Static(bytes)
    }
}

impl<const N: usize> From<&'static [u8; N]> for Source {
    fn from(bytes: &'static [u8; N]) -> Self {
        Self::Static(bytes)
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}
