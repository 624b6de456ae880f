//! The files: one for each run, in a directory that one process uses at a time.
//!
//! A file is the run's head ([`RunPlace::head`]), its pages, and a CRC-32 of both. The name says identity, number and key. A
//! file is written under another name and then renamed, and never changed afterwards but for its time of modification.
//! Nothing is synced: what a power loss tears fails the checksum, and costs a computation.

use super::runs::{CHECKSUM_BYTES, MAGIC, RunKey, RunPlace, RunShape};
use std::fs::{self, DirEntry, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// The file that the process which uses the directory has locked.
const LOCK_NAME: &str = "lock";

/// Ends of names: of a run, and of one that is being written.
const RUN_SUFFIX: &str = ".run";
const PARTIAL_SUFFIX: &str = ".run.part";

/// Directory entries that are examined at the start.
const FILES_MAX: usize = 2 * super::runs::RUNS_MAX;

/// Runs used within the same hour are of one age, so that after a restart eviction takes the ends of prefixes first.
const AGE_SECONDS: u64 = 3600;

/// The directory, locked.
pub(super) struct RunDirectory {
    path: PathBuf,
    identity: RunKey,
    _lock: File,
}

/// A file of the right size, found at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundRun {
    pub(super) key: RunKey,
    /// Number of the run in its prefix.
    pub(super) run: u32,
    pub(super) bytes: u64,
    /// Hour of the last use.
    hour: u64,
}

/// Why a run was not read.
#[derive(Debug)]
pub(super) enum RunReadError {
    /// The file is gone.
    Missing,
    /// Head, length or checksum are not the run's, or others may have written the file, which was removed.
    Damaged,
    /// The system reported an error.
    Failed(io::Error),
}

impl RunDirectory {
    /// Creates and locks the directory, and removes files of other identities, of another size, and those whose writing did
    /// not end. Returns the runs, least recently used first. Files with names of another form are left alone.
    ///
    /// # Errors
    /// The directory cannot be used; [`io::ErrorKind::WouldBlock`]: another process uses it.
    pub(super) fn open(
        path: PathBuf,
        identity: RunKey,
        shape: RunShape,
    ) -> io::Result<(Self, Vec<FoundRun>)> {
        private_files::create_directory(&path)?;
        private_files::secure_directory(&path)?;
        let lock = private_files::open_or_create(&path.join(LOCK_NAME))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        let directory = Self {
            path,
            identity,
            _lock: lock,
        };
        let entries = fs::read_dir(&directory.path)?.take(FILES_MAX).flatten();
        let mut found: Vec<FoundRun> = entries
            .filter_map(|entry| directory.examine(&entry, shape))
            .collect();
        found.sort_unstable_by_key(|found| (found.hour, std::cmp::Reverse(found.run), found.key));
        Ok((directory, found))
    }

    /// The run of a directory entry; other files with names of this form are removed.
    fn examine(&self, entry: &DirEntry, shape: RunShape) -> Option<FoundRun> {
        let name = entry.file_name();
        let name = name.to_str()?;
        let (stem, is_partial) = match name.strip_suffix(PARTIAL_SUFFIX) {
            Some(stem) => (stem, true),
            None => (name.strip_suffix(RUN_SUFFIX)?, false),
        };
        let (identity, run, key) = parse_stem(stem)?;
        let metadata = entry.metadata().ok()?;
        let is_whole = metadata.is_file() && metadata.len() == shape.file_bytes(run);
        if is_partial || identity != self.identity || !is_whole {
            let _ = fs::remove_file(entry.path());
            return None;
        }
        let modified = metadata.modified().ok();
        let seconds = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Some(FoundRun {
            key,
            run,
            bytes: metadata.len(),
            hour: seconds.map_or(0, |time| time.as_secs() / AGE_SECONDS),
        })
    }

    /// Reads the pages of a run into `pages`. A damaged file is removed.
    pub(super) fn read(&self, place: &RunPlace, pages: &mut [u8]) -> Result<(), RunReadError> {
        let read = self.read_file(place, pages);
        if matches!(read, Err(RunReadError::Damaged)) {
            self.remove(place.key(), place.run as u32);
        }
        read
    }

    fn read_file(&self, place: &RunPlace, pages: &mut [u8]) -> Result<(), RunReadError> {
        let path = self.path_of(place.key(), place.run as u32, RUN_SUFFIX);
        let mut file = private_files::open_to_write(&path)?;
        let (expected, mut checksum) = (place.head(), [0; CHECKSUM_BYTES]);
        let mut head = vec![0; expected.len()];
        file.read_exact(&mut head)?;
        file.read_exact(pages)?;
        file.read_exact(&mut checksum)?;
        if head != expected || checksum != checksum_of(&head, pages) {
            return Err(RunReadError::Damaged);
        }
        // The first bytes once more: the system notes the time of the use. An error costs the place among the others.
        let _ = private_files::write_at(&file, &MAGIC, 0);
        Ok(())
    }

    /// Writes a run.
    ///
    /// # Errors
    /// The system reported an error, such as a full disk; nothing is left of the file.
    pub(super) fn write(&self, place: &RunPlace, pages: &[u8]) -> io::Result<()> {
        let (key, run) = (place.key(), place.run as u32);
        let partial = self.path_of(key, run, PARTIAL_SUFFIX);
        let written = self.write_file(place, pages);
        let renamed = written.and_then(|()| {
            let path = self.path_of(key, run, RUN_SUFFIX);
            fs::rename(&partial, path)
        });
        if renamed.is_err() {
            let _ = fs::remove_file(partial);
        }
        renamed
    }

    fn write_file(&self, place: &RunPlace, pages: &[u8]) -> io::Result<()> {
        let partial = self.path_of(place.key(), place.run as u32, PARTIAL_SUFFIX);
        // Of a process that ended while it wrote.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private_files::create_new(&partial)?;
        let head = place.head();
        file.write_all(&head)?;
        file.write_all(pages)?;
        file.write_all(&checksum_of(&head, pages))
    }

    /// Removes a run, if the file is there.
    pub(super) fn remove(&self, key: RunKey, run: u32) {
        let _ = fs::remove_file(self.path_of(key, run, RUN_SUFFIX));
    }

    fn path_of(&self, key: RunKey, run: u32, suffix: &str) -> PathBuf {
        let (identity, key) = (self.identity.0, key.0);
        self.path
            .join(format!("{identity:032x}-{run:08x}-{key:032x}{suffix}"))
    }
}

/// Identity, number and key in a name without its suffix.
fn parse_stem(stem: &str) -> Option<(RunKey, u32, RunKey)> {
    let mut parts = stem.split('-');
    let mut next = |digits: usize| parts.next().filter(|part| part.len() == digits);
    let (identity, run, key) = (next(32)?, next(8)?, next(32)?);
    let number = |text| u128::from_str_radix(text, 16).ok().map(RunKey);
    let run = u32::from_str_radix(run, 16).ok()?;
    let parsed = (number(identity)?, run, number(key)?);
    parts.next().is_none().then_some(parsed)
}

fn checksum_of(head: &[u8], pages: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(pages);
    hasher.finalize().to_le_bytes()
}

impl From<io::Error> for RunReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Self::Damaged,
            _ => Self::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests;
