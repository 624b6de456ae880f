//! Group commit: one sync at a time, on another thread than the writer's, so that no write waits for the disk.

use crate::file_system::{FileSystem, JournalFile};
use std::io;
use std::sync::Arc;
use std::time::Duration;

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
