//! Barrier thread pool: a fixed set of threads that run one closure together.
//!
//! The caller is worker 0, so a pool of one thread is a plain call. [`workers`] describes the synchronization;
//! the methods here split slices and ranges so that callers need no `unsafe`.

#[cfg(test)]
mod modelled;
mod partition;
mod sync;
#[cfg(test)]
mod tests;
mod workers;

pub(crate) use partition::DisjointSlice;

use std::io;
use workers::WorkerThreads;

/// Spins of a waiting thread before it sleeps: about eighty microseconds where a pause takes 20 ns, longer than
/// the caller's work between two matmuls and much shorter than a step.
const SPINS_MAX: u32 = 4096;

/// A fixed set of threads that run one closure together; the caller is worker 0.
pub struct Pool {
    workers: WorkerThreads,
}

impl Pool {
    /// A pool of `threads` workers in all, the caller included (at least 1).
    ///
    /// # Panics
    /// If the system refuses a thread; see [`Pool::try_new`].
    pub fn new(threads: usize) -> Self {
        Self::try_new(threads).expect("the system refuses a kernel thread")
    }

    /// As [`Pool::new`], with an error if the operating system fails to start a thread, or a ticket of the pool cannot
    /// number so many.
    pub fn try_new(threads: usize) -> io::Result<Self> {
        let threads = threads.max(1);
        // Spinning on a core that another worker needs only delays that worker.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spins = if threads <= cores { SPINS_MAX } else { 0 };
        Ok(Self {
            workers: WorkerThreads::new(threads - 1, spins)?,
        })
    }

    /// Number of workers, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.count() + 1
    }

    /// Runs `work(share)` once for each share `0..threads` and returns when all are done; share 0 on the
    /// caller, the others on idle threads, or on the caller if no thread has claimed them by then. Allocates
    /// nothing.
    ///
    /// # Panics
    /// Resumes a panic of any share with its payload after all shares have finished (the caller's own first).
    /// The pool stays usable.
    pub fn run(&mut self, work: impl Fn(usize) + Sync) {
        if self.workers.count() == 0 {
            work(0);
        } else {
            self.workers.run(&work);
        }
    }

    /// Runs `work` once on each thread.
    ///
    /// # Panics
    /// As [`Pool::run`].
    pub fn run_on_each(&mut self, work: impl Fn() + Sync) {
        if self.workers.count() == 0 {
            work();
        } else {
            self.workers.run_on_each(&|_| work());
        }
    }
}
