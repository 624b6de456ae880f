//! The files of the cache.
//!
//! ```text
//! NAME.packed          a complete file; its time of the last write is that of its last use
//! NAME.PID-N.part      a file that is being written
//! NAME.lock            locked while NAME is written; empty
//! ```
//!
//! Writers of one name exclude each other by the lock, so that no work is done twice; without it, the names of partial
//! files differ all the same, and a rename replaces one complete file by another. A mapped file that is evicted or replaced
//! stays with those who have mapped it.
//!
//! # Names and keys
//! A stale file is never used, because the key contains what changes with the model's files: of each file the length, the
//! time of the last write and the time of the last change, which no program can set, taken from the opened file before a byte is
//! read. A file that was changed less than [`SETTLED_NS`] before the load is packed and not cached: a second change within
//! one tick of the file system's clock would leave the stamp as it is. The digest of the content (all hyperparameters,
//! and 64 KiB of each tensor) is in the key as well, for file systems whose times cannot be trusted.
//!
//! Names and paths are not in the key, so a model that is reached by several paths has one file.

use crate::model_files::{PartsDigest, weights_digest};
use kernels::{Isa, packing_fingerprint};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};
use weights::packed_file::{PackedKey, TENSORS_VERSION};
use weights::{FileStamp, ModelFiles};

/// Directory entries examined.
const ENTRIES_MAX: usize = 10_000;
const PART_ENDING: &str = "part";
const LOCK_ENDING: &str = "lock";

/// A directory with a bound.
#[derive(Clone, Debug)]
pub(super) struct CacheDirectory {
    pub(super) path: PathBuf,
    /// Bytes of all files.
    pub(super) bytes_max: u64,
}

/// A file of the directory.
#[derive(Clone, Debug)]
pub(super) struct CachedFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    used: SystemTime,
}

impl CacheDirectory {
    /// The path of the complete file of this name.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.{ENDING}"))
    }

    /// A path for a file that is being written, which no other writer has.
    pub(super) fn part(&self, name: &str) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        self.path
            .join(format!("{name}.{process}-{number}.{PART_ENDING}"))
    }

    /// Creates the directory, for this user alone.
    ///
    /// # Errors
    /// None can be created, or others may write to the directory.
    pub(super) fn create(&self) -> io::Result<()> {
        private_files::create_directory(&self.path)?;
        private_files::secure_directory(&self.path)
    }

    /// Whether the directory is there, and only this user writes to it.
    ///
    /// # Errors
    /// Others may write to the directory.
    pub(super) fn is_usable(&self) -> io::Result<bool> {
        match private_files::secure_directory(&self.path) {
            Err(why) if why.kind() == io::ErrorKind::InvalidData => Err(why),
            secured => Ok(secured.is_ok()),
        }
    }

    /// The right to write the file of this name, until the value is dropped; `None` while another process has it.
    pub(super) fn lock(&self, name: &str) -> io::Result<Option<File>> {
        let path = self.path.join(format!("{name}.{LOCK_ENDING}"));
        // A volume's `fsGroup` gives the group the right to write.
        private_files::close_to_group(&path)?;
        let file = private_files::open_or_create(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(why)) => Err(why),
        }
    }

    /// Notes a use of a file.
    pub(super) fn touch(&self, path: &Path, now_unix_s: i64) {
        let now = UNIX_EPOCH + Duration::from_secs(now_unix_s.max(0) as u64);
        let touched = private_files::open_to_read(path).and_then(|file| file.set_modified(now));
        if let Err(why) = touched {
            tracing::debug!("packed cache: {}: {why}", path.display());
        }
    }

    /// All complete files.
    pub(super) fn packed(&self) -> Vec<CachedFile> {
        self.files(ENDING)
    }

    /// Removes partial files whose writers are gone, and locks that no file needs.
    pub(super) fn remove_leftovers(&self) {
        for file in self.files(PART_ENDING) {
            let name = file.name.split('.').next().unwrap_or_default();
            // Held until the file is removed. A writer has the lock as long as its file is partial.
            if let Ok(Some(_lock)) = self.lock(name) {
                self.remove(&file);
            }
        }
        for file in self.files(LOCK_ENDING) {
            let name = file
                .name
                .trim_end_matches(LOCK_ENDING)
                .trim_end_matches('.');
            if self.file(name).exists() {
                continue;
            }
            if let Ok(Some(_lock)) = self.lock(name) {
                self.remove(&file);
            }
        }
    }

    /// Removes the files that were not used for the longest time, until `bytes` more are within the bound; never the file of
    /// the name `kept`.
    ///
    /// # Errors
    /// `bytes` alone are more than the bound.
    pub(super) fn make_room(&self, bytes: u64, kept: &str) -> io::Result<()> {
        if bytes > self.bytes_max {
            let why = format!(
                "{} MiB are more than models.packed_cache_gib allows ({} GiB)",
                bytes >> 20,
                self.bytes_max >> 30
            );
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
        }
        let mut files = self.packed();
        files.sort_by(|a, b| (a.used, &a.name).cmp(&(b.used, &b.name)));
        let parts: u64 = self.files(PART_ENDING).iter().map(|file| file.bytes).sum();
        let mut all = parts + files.iter().map(|file| file.bytes).sum::<u64>();
        let kept = format!("{kept}.{ENDING}");
        for file in files.iter().filter(|file| file.name != kept) {
            if all.saturating_add(bytes) <= self.bytes_max {
                break;
            }
            self.remove(file);
            all -= file.bytes;
        }
        Ok(())
    }

    /// Syncs the names of the files.
    pub(super) fn sync(&self) -> io::Result<()> {
        private_files::sync_directory(&self.path)
    }

    fn remove(&self, file: &CachedFile) {
        match fs::remove_file(self.path.join(&file.name)) {
            Ok(()) => tracing::debug!("packed cache: removed {}", file.name),
            Err(why) => tracing::warn!("packed cache: {}: {why}", file.name),
        }
    }

    /// The files with this ending; none in a directory that cannot be read.
    fn files(&self, ending: &str) -> Vec<CachedFile> {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let described = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let (_, found) = name.rsplit_once('.')?;
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            (found == ending).then_some(CachedFile {
                bytes: metadata.len(),
                used: metadata.modified().unwrap_or(UNIX_EPOCH),
                name,
            })
        };
        entries.take(ENTRIES_MAX).filter_map(described).collect()
    }
}

/// Time since the last change of a file after which another change has another stamp: the coarsest clock of a file system is
/// that of FAT, two seconds.
const SETTLED_NS: i128 = 3_000_000_000;
/// Hexadecimal digits of the two parts of a name.
const SOURCE_DIGITS: usize = 16;
const KEY_DIGITS: usize = 32;
/// Ending of a complete file.
pub(super) const ENDING: &str = "packed";

/// The first part of the names of all cached files of a model: a digest of its files' stamps.
pub(super) struct SourceName(String);

impl SourceName {
    /// `None` for a model that is in no file.
    pub(super) fn of(files: &ModelFiles) -> Option<Self> {
        Some(Self::of_stamps(&files.stamps()?))
    }

    fn of_stamps(stamps: &[FileStamp]) -> Self {
        let mut digest = PartsDigest::new();
        for stamp in stamps {
            digest.add(&stamp.encoded());
        }
        let mut name = digest.finish();
        name.truncate(SOURCE_DIGITS);
        Self(name)
    }

    /// Whether a cached file of this name is of the model.
    pub(super) fn is_of(&self, name: &str) -> bool {
        name.split_once('-').is_some_and(|parts| parts.0 == self.0)
    }
}

/// Name and key of the cached file of a model with the settings of a load.
#[derive(Clone, Debug)]
pub(super) struct FileKey {
    /// The name without ending.
    pub(super) name: String,
    pub(super) key: PackedKey,
    /// Whether the model's files have not been changed for some time.
    pub(super) is_settled: bool,
}

impl FileKey {
    /// `None` for a model that is in no file. `has_mtp`: the MTP head is loaded, too. `now_unix_s` is the time of the load.
    pub(super) fn of(files: &ModelFiles, isa: Isa, has_mtp: bool, now_unix_s: i64) -> Option<Self> {
        static FINGERPRINT: OnceLock<u64> = OnceLock::new();
        let stamps = files.stamps()?;
        let mut digest = PartsDigest::new();
        digest.add(env!("CARGO_PKG_VERSION").as_bytes());
        digest.add(&FINGERPRINT.get_or_init(packing_fingerprint).to_le_bytes());
        digest.add(isa.packed_layout().as_bytes());
        digest.add(&TENSORS_VERSION.to_le_bytes());
        digest.add(&[u8::from(has_mtp)]);
        for stamp in &stamps {
            digest.add(&stamp.encoded());
        }
        // With the formats after quantization at load.
        digest.add(weights_digest(files).as_bytes());
        let mut hex = digest.finish();
        hex.truncate(KEY_DIGITS);
        let now_ns = i128::from(now_unix_s) * 1_000_000_000;
        let is_settled = |stamp: &FileStamp| now_ns - stamp.changed_ns >= SETTLED_NS;
        Some(Self {
            name: format!("{}-{hex}", SourceName::of_stamps(&stamps).0),
            key: PackedKey(digest.bytes()),
            is_settled: stamps.iter().all(is_settled),
        })
    }
}
