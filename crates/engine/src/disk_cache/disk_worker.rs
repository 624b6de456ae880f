//! The thread that reads and writes the files, so that the engine thread never waits for the disk.
//!
//! Jobs are done in order, and each read and write has one reply, after which the engine thread is woken. Both channels hold
//! more than may be on the way ([`JOBS_MAX`]), so neither side waits for the other.

use super::run_directory::{RunDirectory, RunReadError};
use super::runs::{RunKey, RunPlace};
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

/// Refusals after which one prefix is read anyway, so that an old measurement of a slow disk does not count without end.
const REFUSALS_MAX: u32 = 32;

/// Measured rate of the reads, waiting in the engine's loop included.
#[derive(Debug, Default)]
pub(super) struct ReadRate {
    bytes: u64,
    ns: u64,
    refusals: u32,
}

impl ReadRate {
    /// Learns from a read that took so long. Each read halves the weight of those before.
    pub(super) fn record(&mut self, bytes: u64, ns: u64) {
        self.bytes = self.bytes / 2 + bytes;
        self.ns = self.ns / 2 + ns.max(1);
    }

    /// Whether reading so many bytes is expected to take less time than computing so many tokens, at `row_ns` each; also true
    /// where either is not known yet (`row_ns` 0).
    pub(super) fn is_faster(&mut self, bytes: u64, tokens: usize, row_ns: u64) -> bool {
        if self.bytes == 0 || row_ns == 0 {
            return true;
        }
        let reading = u128::from(self.ns) * u128::from(bytes) / u128::from(self.bytes);
        let computing = u128::from(row_ns) * tokens as u128;
        if reading < computing {
            self.refusals = 0;
            return true;
        }
        self.refusals += 1;
        let is_trial = self.refusals > REFUSALS_MAX;
        if is_trial {
            self.refusals = 0;
        }
        is_trial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn slow_disk_is_read_only_as_a_trial() {
        let mut rate = ReadRate::default();
        assert!(rate.is_faster(1000, 10, MS), "nothing is known");
        rate.record(1000, 5 * MS);
        assert!(rate.is_faster(1000, 10, 0), "no prompt was computed yet");
        assert!(rate.is_faster(1000, 10, MS), "5 ms and 10 ms");
        rate.record(1000, 100 * MS);
        let read = (0..100).filter(|_| rate.is_faster(1000, 10, MS)).count();
        assert_eq!(read, 3);
        // Fast again: each read counts half of the one before.
        for _ in 0..8 {
            rate.record(1000, MS);
        }
        assert!(rate.is_faster(1000, 10, MS));
    }
}
