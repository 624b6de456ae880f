//! Whether what is appended reaches the disk, and group commit: one sync at a time, on another thread than the writer's, so that
//! no write waits for the disk.

use crate::file_system::{FileSystem, JournalFile};
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Time until the first attempt to write again; doubled after each failure.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// Longest time between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// State of a journal. No stream ends because of the disk: records that cannot be written are dropped, and the streams are
/// rewritten when the disk works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Records are written and synced.
    Durable,
    /// Records may be lost.
    NotDurable(Impairment),
}

/// Why records may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impairment {
    /// The disk or a quota is full.
    #[error("the disk is full")]
    DiskFull,
    /// The live streams need more than `bytes_max` allows.
    #[error("journal.bytes_max is reached")]
    SpaceLimit,
    /// A write failed twice, the second time in a new file.
    #[error("a write failed ({0})")]
    WriteFailed(DiskError),
    /// A sync failed. Records are written further, and survive the process but perhaps not the machine.
    #[error("a sync failed ({0})")]
    SyncFailed(DiskError),
    /// A sync runs for ten seconds. Records are written further.
    #[error("a sync takes more than ten seconds")]
    SyncSlow,
}

/// An error of the disk in the words of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskError {
    kind: ErrorKind,
    /// The system's number; `None` for an error that the system did not report.
    code: Option<i32>,
}

impl From<&io::Error> for DiskError {
    fn from(error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            code: error.raw_os_error(),
        }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => io::Error::from_raw_os_error(code).fmt(f),
            None => self.kind.fmt(f),
        }
    }
}

/// Durability with the time of the next attempt.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) durability: Durability,
    pub(crate) retry_at: Duration,
    delay: Duration,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            durability: Durability::Durable,
            retry_at: Duration::ZERO,
            delay: RETRY_FIRST,
        }
    }

    /// Whether records are written; only ends of streams are, into the reserve, while they are not.
    pub(crate) fn is_writing(&self) -> bool {
        use Durability::NotDurable;
        use Impairment::{DiskFull, SpaceLimit, WriteFailed};
        !matches!(
            self.durability,
            NotDurable(DiskFull | SpaceLimit | WriteFailed(_))
        )
    }

    pub(crate) fn impair(&mut self, impairment: Impairment, now: Duration) {
        self.durability = Durability::NotDurable(impairment);
        self.postpone(now);
    }

    /// The next attempt, twice as far away as the last.
    pub(crate) fn postpone(&mut self, now: Duration) {
        self.retry_at = now + self.delay;
        self.delay = (self.delay * 2).min(RETRY_MAX);
    }

    /// Space was freed: the next attempt is due soon, at most once a second.
    pub(crate) fn retry_soon(&mut self, now: Duration) {
        self.retry_at = self.retry_at.min(now + RETRY_FIRST);
    }

    /// Records are written again; the next failure waits as long as if there had been no success in between.
    pub(crate) fn resume(&mut self) {
        self.durability = Durability::Durable;
    }

    /// All streams are on the disk again.
    pub(crate) fn reset_delay(&mut self) {
        self.delay = RETRY_FIRST;
    }
}

/// Work of a sync.
#[derive(Debug)]
pub(crate) struct SyncState<F: FileSystem> {
    /// Full segments that were not synced yet.
    pub(crate) full: Vec<Arc<F::File>>,
    /// Whether the current segment was written since the last sync.
    pub(crate) current_is_dirty: bool,
    /// Whether segments were created.
    pub(crate) directory_is_dirty: bool,
    pub(crate) is_running: bool,
    pub(crate) started_at: Option<Duration>,
    /// Frames below this number are on the disk.
    pub(crate) frames: u64,
    /// Frames below this number are on the disk, or were given up with a file whose sync failed.
    pub(crate) settled_frames: u64,
    /// Commits that are on the disk.
    pub(crate) commits: u64,
    /// The vector of the last job, used again.
    pub(crate) spare: Vec<Arc<F::File>>,
}

impl<F: FileSystem> SyncState<F> {
    pub(crate) fn new(frames: u64) -> Self {
        Self {
            full: Vec::new(),
            current_is_dirty: false,
            directory_is_dirty: false,
            is_running: false,
            started_at: None,
            frames,
            settled_frames: frames,
            commits: 0,
            spare: Vec::new(),
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.current_is_dirty || self.directory_is_dirty || !self.full.is_empty()
    }
}

/// Files to sync. [`run`](Self::run) blocks as long as the disk does; the result goes back to the writer.
#[derive(Debug)]
pub struct SyncJob<F: FileSystem> {
    pub(crate) fs: Arc<F>,
    pub(crate) files: Vec<Arc<F::File>>,
    pub(crate) with_directory: bool,
    pub(crate) frames: u64,
    pub(crate) commits: u64,
}

/// Result of a [`SyncJob`].
#[derive(Debug)]
pub struct SyncDone<F: FileSystem> {
    pub(crate) job: SyncJob<F>,
    pub(crate) result: io::Result<()>,
}

impl<F: FileSystem> SyncJob<F> {
    /// Syncs the files one after another.
    pub fn run(self) -> SyncDone<F> {
        let result = self.sync_files();
        SyncDone { job: self, result }
    }

    fn sync_files(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        if self.with_directory {
            self.fs.sync_directory()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impairment_has_the_reason_of_the_system() {
        // EIO has this number on each system that has it.
        let error = io::Error::from_raw_os_error(5);
        let failed = Impairment::WriteFailed(DiskError::from(&error)).to_string();
        assert_eq!(failed, format!("a write failed ({error})"));
        assert!(failed.contains("os error 5"), "{failed}");
        let error = DiskError::from(&ErrorKind::NotFound.into());
        let failed = Impairment::SyncFailed(error).to_string();
        assert_eq!(failed, "a sync failed (entity not found)");
    }
}
