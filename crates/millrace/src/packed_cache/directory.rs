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

use super::key::ENDING;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
