//! Syncs in groups, acknowledgements, and whether what is appended reaches the disk.

use crate::journal_directory::{FileSystem, JournalFile};
use crate::record::Record;
use crate::record_encoding::RecordAddress;
use crate::stream_table::LiveStream;
use crate::writer::Writer;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a sync that runs is reported.
const SYNC_SLOW: Duration = Duration::from_secs(10);

impl<F: FileSystem> Writer<F> {
    /// A sync that is due, to be run on another thread; the result belongs to [`finish_sync`](Self::finish_sync).
    pub fn take_sync_job(&mut self, now: Duration) -> Option<SyncJob<F>> {
        self.now = self.now.max(now);
        if self.now < self.sync_due_at()? {
            return None;
        }
        let mut files = std::mem::take(&mut self.sync.spare);
        files.append(&mut self.sync.full);
        if let Some(current) = self.current.as_ref().filter(|_| self.sync.current_is_dirty) {
            files.push(Arc::clone(&current.file));
        }
        let with_directory = self.sync.directory_is_dirty;
        self.sync.current_is_dirty = false;
        self.sync.directory_is_dirty = false;
        self.sync.is_running = true;
        self.sync.started_at = Some(self.now);
        Some(SyncJob {
            fs: Arc::clone(&self.fs),
            files,
            with_directory,
            frames: self.next_frame,
            commits: self.commits,
        })
    }

    fn sync_due_at(&self) -> Option<Duration> {
        if self.sync.is_running || !self.sync.has_work() {
            return None;
        }
        let last = self.sync.started_at;
        let due = last.map_or(self.now, |last| last + self.config.sync_interval);
        // On a full disk, too, files are synced: the file of a deleted segment takes space until it is closed.
        let is_failing = self.durability() != Durability::Durable && self.health.is_writing();
        Some(if is_failing {
            due.max(self.health.retry_at)
        } else {
            due
        })
    }

    /// When a sync that runs is slow enough to be reported.
    fn sync_slow_at(&self) -> Option<Duration> {
        let started_at = self.sync.started_at.filter(|_| self.sync.is_running)?;
        (self.durability() == Durability::Durable).then_some(started_at + SYNC_SLOW)
    }

    /// A sync that takes too long makes the journal not durable, so that no acknowledgement waits for the disk.
    pub(crate) fn note_slow_sync(&mut self) {
        if self
            .sync_slow_at()
            .is_some_and(|slow_at| self.now >= slow_at)
        {
            self.health.impair(Impairment::SyncSlow, self.now);
        }
    }

    /// When the writer has something to do without new records: a sync or another attempt to write is due.
    pub fn wake_at(&self) -> Option<Duration> {
        let retry_at = (!self.health.is_writing()).then_some(self.health.retry_at);
        let times = [self.sync_due_at(), self.sync_slow_at(), retry_at];
        times.into_iter().flatten().min()
    }

    /// Whether a job was taken whose result is missing.
    pub fn sync_is_running(&self) -> bool {
        self.sync.is_running
    }

    /// Orderly shutdown: writes everything with the seal, and waits for the disk.
    pub fn close(mut self, now: Duration) {
        self.commit(now);
        let address = RecordAddress {
            handle: 0,
            sequence: 0,
        };
        let pushed = self.batch.push(address, &Record::Seal);
        debug_assert!(pushed.is_ok(), "the record has no part with a bound");
        self.flush_batch();
        self.sync.started_at = None;
        if let Some(job) = self.take_sync_job(now) {
            self.finish_sync(job.run(), now);
        }
    }

    /// Takes the result of a sync. A file whose sync failed is never written or synced again, because the pages may be
    /// lost although they look clean: all live streams are rewritten into a new segment.
    pub fn finish_sync(&mut self, done: SyncDone<F>, now: Duration) {
        self.now = self.now.max(now);
        let SyncDone { mut job, result } = done;
        self.sync.is_running = false;
        self.sync.settled_frames = self.sync.settled_frames.max(job.frames);
        match result {
            Ok(()) => {
                self.counts.syncs += 1;
                self.sync.frames = self.sync.frames.max(job.frames);
                self.note_synced_copies();
                self.sync.commits = self.sync.commits.max(job.commits);
                self.note_sync();
                self.restore_reserve();
                self.delete_dead_segments();
            }
            Err(error) => {
                self.counts.errors += 1;
                self.streams
                    .streams_mut()
                    .for_each(LiveStream::note_failed_sync);
                let has_failed =
                    |file: &Arc<F::File>| job.files.iter().any(|f| Arc::ptr_eq(f, file));
                self.current.take_if(|current| has_failed(&current.file));
                // The current file of the job may have become a full one meanwhile.
                self.sync.full.retain(|file| !has_failed(file));
                if self.reserve.as_ref().is_some_and(has_failed) {
                    self.discard_reserve();
                }
                self.sync.directory_is_dirty |= job.with_directory;
                if self.health.is_writing() {
                    self.rewrite_all();
                    let impairment = Impairment::SyncFailed((&error).into());
                    self.health.impair(impairment, self.now);
                } else {
                    self.resume_below = self.segments.next_number;
                }
            }
        }
        job.files.clear();
        self.sync.spare = job.files;
        self.update_acknowledged();
    }

    /// The versions that were replaced before the sync are not needed any more.
    fn note_synced_copies(&mut self) {
        if !self.has_replaced {
            return;
        }
        self.has_replaced = false;
        self.may_have_dead_segments = true;
        for stream in self.streams.streams_mut() {
            stream.note_synced(self.sync.frames);
            self.has_replaced |= stream.replaced_base != u64::MAX;
        }
    }

    /// After a failed sync the journal is durable again once all live streams were rewritten and synced.
    fn note_sync(&mut self) {
        if self.health.is_writing() && self.cycle.is_none() {
            self.health.resume();
            if self.gaps == 0 {
                self.health.reset_delay();
            }
        }
    }

    pub(crate) fn update_acknowledged(&mut self) {
        let is_clean = !self.sync.has_work() && !self.sync.is_running;
        if is_clean {
            self.sync.commits = self.commits;
            self.note_sync();
        }
        let waits_for_sync =
            self.config.sync_interval.is_zero() && self.durability() == Durability::Durable;
        let acknowledged = if waits_for_sync {
            self.sync.commits
        } else {
            self.commits
        };
        self.acknowledged = self.acknowledged.max(acknowledged);
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impairment {
    /// The disk or a quota is full.
    DiskFull,
    /// The live streams need more than `bytes_max` allows.
    SpaceLimit,
    /// A write failed twice, the second time in a new file.
    WriteFailed(DiskError),
    /// A sync failed. Records are written further, and survive the process but perhaps not the machine.
    SyncFailed(DiskError),
    /// A sync runs for ten seconds. Records are written further.
    SyncSlow,
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DiskFull => write!(f, "the disk is full"),
            Self::SpaceLimit => write!(f, "journal.bytes_max is reached"),
            Self::WriteFailed(error) => write!(f, "a write failed ({error})"),
            Self::SyncSlow => write!(f, "a sync takes more than ten seconds"),
            Self::SyncFailed(error) => write!(f, "a sync failed ({error})"),
        }
    }
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
