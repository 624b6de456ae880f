//! A request as an engine of another process gets it: a record, and the files that the record names.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The record of a request.
#[derive(Clone, Debug, Default)]
pub struct RemoteRecord {
    /// The record, in an encoding of the caller.
    pub bytes: Arc<[u8]>,
    /// Files that the record names by their digests; `None`: there are none.
    pub files: Option<Arc<RemoteFiles>>,
}

/// Files of a request, in memory until the last reference is gone.
pub struct RemoteFiles {
    /// The files, each digest once.
    pub files: Vec<RemoteFile>,
    /// Rows of the prompt that the files become, with a number for each run of rows: prompts with equal numbers there
    /// probably have equal rows. For the choice of an engine only.
    pub rows: Vec<(Range<usize>, u32)>,
    /// A value whose drop returns the caller's share of memory.
    pub held: Arc<dyn Send + Sync>,
}

/// A file by its digest.
#[derive(Clone)]
pub struct RemoteFile {
    /// SHA-256 of the bytes.
    pub digest: [u8; 32],
    /// The file.
    pub bytes: Arc<[u8]>,
}

impl RemoteFiles {
    /// The prompt with the numbers of its rows in their places.
    pub fn numbered(&self, prompt: &[u32]) -> Vec<u32> {
        let mut numbered = prompt.to_vec();
        for (rows, number) in &self.rows {
            if let Some(rows) = numbered.get_mut(rows.clone()) {
                rows.fill(*number);
            }
        }
        numbered
    }
}

/// The bytes may be megabytes, and are a user's.
impl fmt::Debug for RemoteFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFiles")
            .field("files", &self.files.len())
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl From<Arc<[u8]>> for RemoteRecord {
    /// A record that names no files.
    fn from(bytes: Arc<[u8]>) -> Self {
        Self { bytes, files: None }
    }
}

impl From<Vec<u8>> for RemoteRecord {
    /// A record that names no files.
    fn from(bytes: Vec<u8>) -> Self {
        Arc::<[u8]>::from(bytes).into()
    }
}
