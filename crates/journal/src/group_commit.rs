//! Syncs in groups, and acknowledgements.

use crate::durability::{Durability, Impairment, SyncDone, SyncJob};
use crate::file_system::FileSystem;
use crate::record::Record;
use crate::record_encoding::RecordAddress;
use crate::stream_table::LiveStream;
use crate::writer::Writer;
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
                // What became of the streams of a segment is written before the segment goes; a commit does both.
                if self.batch.is_empty() {
                    self.delete_dead_segments();
                }
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
