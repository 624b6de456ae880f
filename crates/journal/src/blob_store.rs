//! Large inputs of streams, such as images: one file for each, named by a hash of its bytes.
//!
//! A record of the journal has a bound of bytes that an image exceeds, and ten streams may share one image. So a description
//! names its blobs, and the bytes are files of their own in the directory `blobs` of the journal.
//!
//! - A blob is on the disk before [`BlobStore::put`] returns: temporary file, sync, rename, sync of the directory. The caller
//!   appends the record that names the blob afterwards, so a recovered record never names a blob that was not written.
//! - A blob lives as long as its references: the drop of the last [`BlobReference`] removes the file. References are not
//!   recorded: a start finds all files without references, the caller takes those that recovered records name
//!   ([`BlobStore::reference`]), and [`BlobStore::remove_unreferenced`] removes the rest, with what a killed process left
//!   half written.
//! - Bytes read back are compared with the name by the caller, who knows the hash: a damaged blob is a lost stream.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Directory of the blobs in the directory of a journal.
pub const BLOBS_NAME: &str = "blobs";

/// Blobs in one store. At the next start the store has at most as many.
pub const BLOBS_MAX: usize = 65_536;

/// Ending of a file that is being written.
const TEMPORARY: &str = ".tmp";

/// Name of a blob: a hash of 256 bits of its bytes.
pub type BlobName = [u8; 32];

/// Why a blob was not stored.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The blobs would have more bytes than the store may have.
    #[error("blobs of the journal have {bytes} of {bytes_max} bytes, {needed} more do not fit")]
    Full {
        /// Bytes of all blobs.
        bytes: u64,
        /// Bytes of the blob.
        needed: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// There are as many blobs as there may be.
    #[error("the journal has {BLOBS_MAX} blobs, the most that there may be")]
    TooMany,
    /// The system's error.
    #[error("blob of the journal: {0}")]
    Io(#[from] io::Error),
}

/// The blobs of one journal.
#[derive(Clone, Debug)]
pub struct BlobStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    bytes_max: u64,
    /// Distinguishes the temporary files of two writers of one blob.
    temporaries: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    blobs: HashMap<BlobName, Blob>,
    /// Bytes of all blobs, also of those that are being written.
    bytes: u64,
    /// Whether the next process decides which blobs are removed.
    is_left: bool,
}

#[derive(Debug)]
struct Blob {
    bytes: u64,
    references: usize,
    is_written: bool,
}

/// A use of a blob. The drop of the last one removes the blob.
#[derive(Debug)]
pub struct BlobReference {
    shared: Arc<Shared>,
    name: BlobName,
}

impl BlobStore {
    /// The blobs in the directory `blobs` of a journal, all without references. To be called by the holder of the
    /// journal's lock. Files that a killed process left half written are removed.
    ///
    /// # Errors
    /// As of the operating system; other users may write to the directory.
    pub fn open(journal: &Path, bytes_max: u64) -> io::Result<Self> {
        let directory = journal.join(BLOBS_NAME);
        private_files::create_directory(&directory)?;
        private_files::secure_directory(&directory)?;
        let mut table = Table::default();
        for entry in fs::read_dir(&directory)?.take(2 * BLOBS_MAX) {
            let entry = entry?;
            let file_name = entry.file_name();
            let file_name = file_name.to_string_lossy();
            if file_name.ends_with(TEMPORARY) {
                fs::remove_file(entry.path())?;
            } else if let Some(name) = parse_name(&file_name) {
                table.add(name, entry.metadata()?.len(), true);
            }
        }
        Ok(Self {
            shared: Arc::new(Shared {
                directory,
                bytes_max,
                temporaries: AtomicU64::new(0),
                table: Mutex::new(table),
            }),
        })
    }

    /// Stores a blob, which is on the disk afterwards. Waits for the disk, unless the blob is there.
    ///
    /// # Errors
    /// A bound of the store, or as of the operating system; the blob is not stored then.
    pub fn put(&self, name: BlobName, bytes: &[u8]) -> Result<BlobReference, BlobError> {
        let (reference, is_written) = self.reserve(name, bytes.len() as u64)?;
        if !is_written {
            self.shared.write(&name, bytes)?;
        }
        Ok(reference)
    }

    /// A reference to a blob that is there.
    #[must_use]
    pub fn reference(&self, name: BlobName) -> Option<BlobReference> {
        let mut table = self.shared.lock();
        let blob = table.blobs.get_mut(&name)?;
        blob.references += 1;
        drop(table);
        Some(self.shared.reference(name))
    }

    /// The bytes of a blob.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: the file is longer than it was at the start, or other users may write to it. Others as of
    /// the operating system.
    pub fn read(&self, reference: &BlobReference) -> io::Result<Vec<u8>> {
        let length = self.shared.length(&reference.name);
        let file = private_files::open_to_read(&self.shared.path(&reference.name))?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        let read = file
            .take(length.saturating_add(1))
            .read_to_end(&mut bytes)?;
        if read as u64 > length {
            let why = "a blob of the journal is longer than it was";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(bytes)
    }

    /// Removes the blobs without references. A file that cannot be removed is left to the next start.
    pub fn remove_unreferenced(&self) {
        let mut table = self.shared.lock();
        let unused = table.blobs.iter().filter(|(_, blob)| blob.references == 0);
        let unused: Vec<BlobName> = unused.map(|(name, _)| *name).collect();
        for name in unused {
            table.remove(&name);
            let _ = fs::remove_file(self.shared.path(&name));
        }
    }

    /// From now on no blob is removed: the next process continues the streams that use them, and removes the rest.
    pub fn leave_to_next(&self) {
        self.shared.lock().is_left = true;
    }

    /// Bytes of all blobs.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().bytes
    }

    /// Number of blobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.lock().blobs.len()
    }

    /// Whether there is no blob.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A reference to a blob, with room for it, and whether it is on the disk.
    fn reserve(&self, name: BlobName, needed: u64) -> Result<(BlobReference, bool), BlobError> {
        let bytes_max = self.shared.bytes_max;
        let mut table = self.shared.lock();
        if !table.blobs.contains_key(&name) {
            let bytes = table.bytes;
            if bytes.saturating_add(needed) > bytes_max {
                return Err(BlobError::Full {
                    bytes,
                    needed,
                    bytes_max,
                });
            }
            if table.blobs.len() >= BLOBS_MAX {
                return Err(BlobError::TooMany);
            }
            table.add(name, needed, false);
        }
        let blob = table.blobs.get_mut(&name);
        let is_written = blob.is_some_and(|blob| {
            blob.references += 1;
            // A file of another length was cut by something else than this store.
            blob.is_written && blob.bytes == needed
        });
        drop(table);
        Ok((self.shared.reference(name), is_written))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reference(self: &Arc<Self>, name: BlobName) -> BlobReference {
        BlobReference {
            shared: Arc::clone(self),
            name,
        }
    }

    fn path(&self, name: &BlobName) -> PathBuf {
        self.directory.join(file_name(name))
    }

    /// Bytes of a blob that has a reference.
    fn length(&self, name: &BlobName) -> u64 {
        self.lock().blobs.get(name).map_or(0, |blob| blob.bytes)
    }

    /// Writes the file of a blob that has a reference. Two writers of one blob write the same bytes, each its own temporary
    /// file; the later rename replaces an equal file.
    fn write(&self, name: &BlobName, bytes: &[u8]) -> io::Result<()> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("{}.{number}{TEMPORARY}", file_name(name));
        let temporary = self.directory.join(temporary);
        let written = self.write_and_rename(&temporary, name, bytes);
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written?;
        private_files::sync_directory(&self.directory)
    }

    fn write_and_rename(&self, from: &Path, name: &BlobName, bytes: &[u8]) -> io::Result<()> {
        let mut file = private_files::create_new(from)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // The last reference of another user of the blob removes the file under the same lock.
        let mut table = self.lock();
        fs::rename(from, self.path(name))?;
        table.set_written(name, bytes.len() as u64);
        Ok(())
    }
}

impl Table {
    fn add(&mut self, name: BlobName, bytes: u64, is_written: bool) {
        let blob = Blob {
            bytes,
            references: 0,
            is_written,
        };
        self.bytes += bytes;
        self.blobs.insert(name, blob);
    }

    fn set_written(&mut self, name: &BlobName, bytes: u64) {
        if let Some(blob) = self.blobs.get_mut(name) {
            self.bytes = self.bytes - blob.bytes + bytes;
            blob.bytes = bytes;
            blob.is_written = true;
        }
    }

    fn remove(&mut self, name: &BlobName) {
        if let Some(blob) = self.blobs.remove(name) {
            self.bytes -= blob.bytes;
        }
    }

    /// Takes a reference away. Returns whether none is left.
    fn release(&mut self, name: &BlobName) -> bool {
        let blob = self.blobs.get_mut(name);
        blob.is_some_and(|blob| {
            blob.references = blob.references.saturating_sub(1);
            blob.references == 0
        })
    }
}

impl BlobReference {
    /// Name of the blob.
    #[must_use]
    pub fn name(&self) -> &BlobName {
        &self.name
    }
}

impl Clone for BlobReference {
    fn clone(&self) -> Self {
        if let Some(blob) = self.shared.lock().blobs.get_mut(&self.name) {
            blob.references += 1;
        }
        self.shared.reference(self.name)
    }
}

impl Drop for BlobReference {
    fn drop(&mut self) {
        let mut table = self.shared.lock();
        if table.release(&self.name) && !table.is_left {
            table.remove(&self.name);
            let _ = fs::remove_file(self.shared.path(&self.name));
        }
    }
}

/// The name in hexadecimal digits.
fn file_name(name: &BlobName) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_name(file_name: &str) -> Option<BlobName> {
    let (digits, rest) = file_name.as_bytes().as_chunks::<2>();
    let digits: &[[u8; 2]; 32] = digits.try_into().ok()?;
    let is_lower = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if !rest.is_empty() || !digits.as_flattened().iter().all(is_lower) {
        return None;
    }
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
    Some(digits.map(|[high, low]| value(high) << 4 | value(low)))
}
