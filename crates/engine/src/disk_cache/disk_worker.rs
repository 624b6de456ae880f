//! The thread that reads and writes the files, so that the engine thread never waits for the disk.
//!
//! Jobs are done in order, and each read and write has one reply, after which the engine thread is woken. Both channels hold
//! more than may be on the way ([`JOBS_MAX`]), so neither side waits for the other.

use super::run_directory::{RunDirectory, RunReadError};
use super::run_prefix::{RunKey, RunPlace};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::task::Waker;
use std::thread::JoinHandle;

/// Jobs and replies on the way: a read or write for each buffer, and the removals before the writes.
const JOBS_MAX: usize = 64;

/// Work for the thread. Buffers have the bytes of a run's pages and come back with the reply.
pub(super) enum DiskJob {
    /// Read a run for the read of this number.
    Read {
        number: u64,
        place: RunPlace,
        pages: Box<[u8]>,
    },
    /// Write a run.
    Write { place: RunPlace, pages: Box<[u8]> },
    /// Remove runs, each with its number in the prefix. No reply.
    Remove(Vec<(RunKey, u32)>),
}

/// Result of a job.
pub(super) enum DiskReply {
    /// A run was read, or not.
    Read {
        number: u64,
        place: RunPlace,
        pages: Box<[u8]>,
        outcome: Result<(), RunReadError>,
    },
    /// A run was written, or not.
    Written {
        place: RunPlace,
        pages: Box<[u8]>,
        outcome: io::Result<()>,
    },
}

/// The engine thread's side.
pub(super) struct DiskWorker {
    /// `None` while the worker is dropped.
    jobs: Option<SyncSender<DiskJob>>,
    replies: Receiver<DiskReply>,
    thread: Option<JoinHandle<()>>,
}

/// The thread has panicked, or has more jobs than can be: the disk cache is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskWorkerLost;

impl DiskWorker {
    /// Starts the thread, named `prompt-cache`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(directory: RunDirectory, waker: Waker) -> io::Result<Self> {
        let (jobs, their_jobs) = sync_channel(JOBS_MAX);
        let (their_replies, replies) = sync_channel(JOBS_MAX);
        let thread = std::thread::Builder::new()
            .name("prompt-cache".into())
            .spawn(move || work(&directory, &their_jobs, &their_replies, &waker))?;
        Ok(Self {
            jobs: Some(jobs),
            replies,
            thread: Some(thread),
        })
    }

    /// Hands a job to the thread; never waits.
    ///
    /// # Errors
    /// The thread is lost.
    pub(super) fn send(&self, job: DiskJob) -> Result<(), DiskWorkerLost> {
        let sent = self.jobs.as_ref().map(|jobs| jobs.try_send(job));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(DiskWorkerLost),
        }
    }

    /// The next reply, if there is one; never waits.
    ///
    /// # Errors
    /// The thread is lost.
    pub(super) fn next_reply(&self) -> Result<Option<DiskReply>, DiskWorkerLost> {
        match self.replies.try_recv() {
            Ok(reply) => Ok(Some(reply)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(DiskWorkerLost),
        }
    }
}

impl DiskWorker {
    /// Leaves the thread to itself: whoever drops the worker afterwards does not wait.
    pub(super) fn detach(mut self) {
        self.thread = None;
    }
}

impl Drop for DiskWorker {
    /// Waits until the jobs that were sent are done, so that the directory is unlocked afterwards.
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(
    directory: &RunDirectory,
    jobs: &Receiver<DiskJob>,
    replies: &SyncSender<DiskReply>,
    waker: &Waker,
) {
    for job in jobs {
        if let Some(reply) = perform(directory, job) {
            if replies.send(reply).is_err() {
                return;
            }
            waker.wake_by_ref();
        }
    }
}

fn perform(directory: &RunDirectory, job: DiskJob) -> Option<DiskReply> {
    match job {
        DiskJob::Read {
            number,
            place,
            mut pages,
        } => Some(DiskReply::Read {
            outcome: directory.read(&place, &mut pages),
            number,
            place,
            pages,
        }),
        DiskJob::Write { place, pages } => Some(DiskReply::Written {
            outcome: directory.write(&place, &pages),
            place,
            pages,
        }),
        DiskJob::Remove(runs) => {
            for (key, run) in runs {
                directory.remove(key, run);
            }
            None
        }
    }
}
