//! A writer with a thread, and a second thread that waits for the disk.
//!
//! The threads: `journal` collects, writes and acknowledges; `journal-sync` runs one sync at a time. A write therefore
//! never waits for a sync, however long the disk takes. [`JournalWaker::wake`] may be called from any thread; wakes
//! between two turns are combined. No wake is lost: the flag is cleared before the records are collected, and the
//! token of `unpark` outlasts the time until the thread parks.

use crate::durability::{SyncDone, SyncJob};
use crate::file_system::FileSystem;
use crate::remote_records::RecordTap;
use crate::stream_table::StreamKey;
use crate::writer::Writer;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// Bytes of streams that are rewritten between two collections of new records.
const REWRITE_BYTES_PER_TURN: u64 = 1 << 20;

/// Streams that are passed to the tap once more between two collections of new records.
const COPIES_PER_TURN: usize = 8;

/// How long an orderly stop waits for the disk.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The caller's side of a journal: where records come from, and what an acknowledgement permits.
pub trait Recorder<F: FileSystem>: Send + 'static {
    /// Appends everything that is new.
    fn collect_records(&mut self, writer: &mut Writer<F>);

    /// Called after each commit and each sync. Records of commits up to [`Writer::acknowledged`] may be emitted.
    fn note_commit(&mut self, writer: &mut Writer<F>, commit: u64);

    /// Passes the state of the stream to [`Writer::rewrite_stream`]. A stream that is not rewritten is forgotten.
    fn rewrite_stream(&mut self, writer: &mut Writer<F>, key: StreamKey);

    /// Passes the state of the stream to the tap's [`copy_stream`](crate::RecordTap::copy_stream).
    fn copy_stream(&mut self, _tap: &mut dyn RecordTap, _key: StreamKey, _id: u128) {}
}

/// Wakes a journal's thread.
#[derive(Clone, Debug)]
pub struct JournalWaker {
    signal: Arc<Signal>,
    thread: Thread,
}

impl JournalWaker {
    /// Makes the thread collect records soon.
    pub fn wake(&self) {
        if !self.signal.is_raised.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

#[derive(Debug, Default)]
struct Signal {
    is_raised: AtomicBool,
    is_stopping: AtomicBool,
}

/// The running threads. Dropping the value stops them in order.
#[derive(Debug)]
pub struct JournalThread {
    waker: JournalWaker,
    writer: Option<JoinHandle<()>>,
}

impl JournalThread {
    /// Starts both threads. `clock` is a monotonic time.
    ///
    /// # Errors
    /// A thread cannot be created.
    pub fn start<F: FileSystem>(
        writer: Writer<F>,
        recorder: impl Recorder<F>,
        clock: impl Fn() -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let (jobs, jobs_received) = sync_channel(1);
        let (results, results_received) = sync_channel(1);
        let turns = Turns {
            writer,
            recorder,
            clock,
            signal: Arc::clone(&signal),
            jobs,
            results: results_received,
        };
        let writer = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || turns.run())?;
        let thread = writer.thread().clone();
        let started = Self {
            waker: JournalWaker {
                signal,
                thread: thread.clone(),
            },
            writer: Some(writer),
        };
        // On failure the drop of `started` ends the first thread.
        thread::Builder::new()
            .name("journal-sync".to_owned())
            .spawn(move || run_jobs(&jobs_received, &results, &thread))?;
        Ok(started)
    }

    /// The handle that wakes the thread when there are new records.
    pub fn waker(&self) -> JournalWaker {
        self.waker.clone()
    }

    /// False after a panic of the recorder: nothing is acknowledged any more.
    pub fn is_running(&self) -> bool {
        self.writer
            .as_ref()
            .is_some_and(|writer| !writer.is_finished())
    }

    /// Collects and commits once more, writes the seal, syncs and ends the threads.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for JournalThread {
    fn drop(&mut self) {
        self.waker.signal.is_stopping.store(true, Ordering::Release);
        self.waker.thread.unpark();
        if let Some(writer) = self.writer.take() {
            // A panic of the recorder was reported by the thread.
            let _ = writer.join();
        }
    }
}

/// Property of the thread `journal`.
struct Turns<F: FileSystem, R, C> {
    writer: Writer<F>,
    recorder: R,
    clock: C,
    signal: Arc<Signal>,
    jobs: SyncSender<SyncJob<F>>,
    results: Receiver<SyncDone<F>>,
}

impl<F: FileSystem, R: Recorder<F>, C: Fn() -> Duration> Turns<F, R, C> {
    fn run(mut self) {
        let mut turn_at = None;
        loop {
            self.pace_turn(turn_at);
            turn_at = Some((self.clock)());
            let is_stopping = self.signal.is_stopping.load(Ordering::Acquire);
            self.signal.is_raised.store(false, Ordering::Release);
            self.recorder.collect_records(&mut self.writer);
            let commit = self.writer.commit((self.clock)());
            self.exchange_syncs();
            self.recorder.note_commit(&mut self.writer, commit);
            let has_more = self.rewrite_streams() | self.copy_streams();
            if is_stopping {
                break;
            }
            if !has_more {
                self.wait();
            }
        }
        self.finish();
    }

    /// Waits until the turn interval has passed since the last turn. The flag of the waker is not cleared before, so that
    /// wakes in this time cost no system call.
    fn pace_turn(&self, last: Option<Duration>) {
        let interval = self.writer.config.turn_interval;
        let due = last.map_or(Duration::ZERO, |last| last + interval);
        while !self.signal.is_stopping.load(Ordering::Acquire) {
            let rest = due.saturating_sub((self.clock)());
            if rest.is_zero() {
                return;
            }
            thread::park_timeout(rest);
        }
    }

    fn exchange_syncs(&mut self) {
        if let Ok(done) = self.results.try_recv() {
            self.writer.finish_sync(done, (self.clock)());
        }
        if let Some(job) = self.writer.take_sync_job((self.clock)()) {
            // The channel has space, because one job runs at a time. Without the other thread this one waits.
            if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
                self.jobs.try_send(job)
            {
                self.writer.finish_sync(job.run(), (self.clock)());
            }
        }
    }

    /// Rewrites streams for a while; returns whether there may be more.
    fn rewrite_streams(&mut self) -> bool {
        let start = self.writer.counts().written_bytes;
        while self.writer.counts().written_bytes - start < REWRITE_BYTES_PER_TURN {
            let Some(key) = self.writer.next_rewrite() else {
                return false;
            };
            let before = self.writer.counts();
            self.recorder.rewrite_stream(&mut self.writer, key);
            let after = self.writer.counts();
            let was_tried = after.rewritten_streams + after.dropped_batches
                > before.rewritten_streams + before.dropped_batches;
            if !was_tried {
                // An unknown key means that the recorder has forgotten the stream.
                let _ = self.writer.forget_stream(key, crate::RELEASED);
            }
        }
        true
    }

    /// Passes streams to the tap once more for a while; returns whether there may be more.
    fn copy_streams(&mut self) -> bool {
        let Some(tap) = self.writer.tap_mut() else {
            return false;
        };
        for _ in 0..COPIES_PER_TURN {
            let Some((key, id)) = tap.next_copy() else {
                return false;
            };
            self.recorder.copy_stream(tap, key, id);
        }
        true
    }

    fn wait(&self) {
        match self.writer.wake_at() {
            Some(due) => thread::park_timeout(due.saturating_sub((self.clock)())),
            None => thread::park(),
        }
    }

    fn finish(mut self) {
        if self.writer.sync_is_running()
            && let Ok(done) = self.results.recv_timeout(STOP_TIMEOUT)
        {
            self.writer.finish_sync(done, (self.clock)());
        }
        self.writer.close((self.clock)());
    }
}

/// Runs syncs until the writer's thread ends.
fn run_jobs<F: FileSystem>(
    jobs: &Receiver<SyncJob<F>>,
    results: &SyncSender<SyncDone<F>>,
    writer: &Thread,
) {
    while let Ok(job) = jobs.recv() {
        if results.send(job.run()).is_err() {
            return;
        }
        writer.unpark();
    }
}
