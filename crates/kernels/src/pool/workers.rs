//! Synchronization of the pool's threads.
//!
//! # States
//!
//! One *caller* and `workers` *worker threads* share `ticket`, `job` (the closure of the current epoch; `None`
//! ends the threads) and `remaining` (unfinished shares beside the caller's own). The ticket is the number of
//! the current *epoch* (the count of jobs) and of the next unclaimed share. Between jobs all shares are claimed
//! and `remaining` is 0.
//!
//! # Protocol
//!
//! Caller: writes `job`; sets `remaining = workers`; writes a ticket of the next epoch and share 1; wakes the
//! workers if `sleepers` is not 0; runs share 0; claims and runs the shares that are left, so that a worker
//! whose core is busy with another process delays nothing; waits until `remaining` is 0.
//!
//! Worker: waits until the ticket's epoch differs from the last epoch seen; claims a share by incrementing the
//! ticket, if a share is left; reads `job`; runs the share; decrements `remaining`; if the share was the last
//! and the caller is `waiting`, wakes the caller. A worker claims at most one share of an epoch.
//!
//! Waiting is a bounded number of spins, then sleep on a condition variable.
//!
//! # Bad interleavings, and why they cannot happen
//!
//! * *A share is claimed twice, or in a finished epoch.* A claim is one compare-and-swap of a ticket that holds both
//!   numbers, and epochs never repeat.
//! * *`job` is written while a worker reads it.* A worker reads `job` between the claim of a share (which acquires what
//!   the ticket published) and its own decrement of `remaining`; the caller writes only while `remaining` is 0, read with
//!   acquire order from that decrement.
//! * *The closure is dropped while a worker runs it.* The caller leaves `run` only after `remaining == 0`, also when its
//!   own share panics: the panic is caught and resumed afterwards.
//! * *A worker sleeps through an epoch.* Then the caller ran the share. Only where each worker has to run a share
//!   ([`WorkerThreads::run_on_each`], and the end of the threads) does the caller leave the shares to the workers.
//! * *A worker falls asleep just as a job is published.* The worker increments `sleepers`, then reads the ticket once
//!   more; the caller writes the ticket, then reads `sleepers`. All four operations are sequentially consistent, so at
//!   least one side sees the other. If the caller sees the sleeper, it passes through the lock before the notification:
//!   the worker, which holds the lock from its last read until the condition variable has it, is then asleep and wakes.
//! * *The caller falls asleep just as the last worker finishes.* The same argument with `waiting` and `remaining`.
//! * *A worker notifies late*, when the caller has already left or waits for the next job. A spurious wake-up is
//!   harmless: both sides check their condition in a loop.
#![allow(unsafe_code)] // The closure's lifetime is erased, and `job` is shared by the protocol above.

use super::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use super::sync::{Condvar, Mutex, MutexGuard, hint, thread};
use std::any::Any;
use std::cell::UnsafeCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};

type Work<'a> = dyn Fn(usize) + Sync + 'a;
type Payload = Box<dyn Any + Send>;

/// The threads of a pool, without the caller.
pub(super) struct WorkerThreads {
    state: Arc<PoolState>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl WorkerThreads {
    /// Starts `workers` threads, `kernel-1` and on, which spin `spins` times before they sleep.
    ///
    /// # Errors
    /// If there are more than [`WORKERS_MAX`] workers, or the system refuses a thread.
    pub(super) fn new(workers: usize, spins: u32) -> io::Result<Self> {
        if workers > WORKERS_MAX {
            let why = format!("{} threads, at most {}", workers + 1, WORKERS_MAX + 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut pool = Self {
            state: Arc::new(PoolState::new(spins)),
            threads: Vec::with_capacity(workers),
        };
        for worker in 1..=workers {
            let state = Arc::clone(&pool.state);
            let thread = thread::Builder::new()
                .name(format!("kernel-{worker}"))
                .spawn(move || state.worker_loop(workers));
            pool.threads
                .push(thread.map_err(|why| thread_error(worker, workers, &why))?);
        }
        Ok(pool)
    }

    /// Threads without the caller.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Runs `work(0)` here and `work(1..)` on workers or, if unclaimed, here; returns when all shares are done.
    pub(super) fn run(&mut self, work: &Work<'_>) {
        self.run_job(work, true);
    }

    /// Runs `work(0)` here and `work(1..)` once on each worker, and returns when all shares are done.
    pub(super) fn run_on_each(&mut self, work: &Work<'_>) {
        self.run_job(work, false);
    }

    fn run_job(&mut self, work: &Work<'_>, caller_helps: bool) {
        // SAFETY: only the lifetime changes. The workers use the closure before they decrement `remaining`, and
        // this function does not return or unwind before `remaining` is 0.
        let job = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        let workers = self.threads.len();
        let epoch = self.state.publish(Some(ErasedJob(job)), workers);
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        if caller_helps {
            while let Some(share) = self.state.claim_share(epoch, workers) {
                self.state.run_share(job, share);
            }
        }
        self.state.wait_for_workers();
        let theirs = lock(&self.state.panicked).take();
        if let Some(payload) = own.err().or(theirs) {
            resume_unwind(payload);
        }
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.state.publish(None, self.threads.len());
        for thread in self.threads.drain(..) {
            // A worker catches every panic of a job, so a worker ends in no other way.
            let _ = thread.join();
        }
    }
}

/// The closure of one epoch.
#[derive(Clone, Copy)]
struct ErasedJob(*const Work<'static>);

/// On a cache line of its own, so that spinning on the value does not slow writers of neighboring fields.
#[repr(align(128))]
struct CachePadded<T>(T);

/// Low bits of a ticket, the number of a share; the other bits are the epoch.
const SHARE_BITS: u32 = 16;
/// Worker threads of a pool: the number of a share, up to one beyond the last, fits its bits of a ticket.
const WORKERS_MAX: usize = (1 << SHARE_BITS) - 2;

struct PoolState {
    spins: u32,
    ticket: CachePadded<AtomicU64>,
    job: UnsafeCell<Option<ErasedJob>>,
    remaining: CachePadded<AtomicUsize>,
    sleepers: AtomicUsize,
    waiting: AtomicBool,
    start_lock: Mutex<()>,
    started: Condvar,
    done_lock: Mutex<()>,
    done: Condvar,
    panicked: Mutex<Option<Payload>>,
}

// SAFETY: the protocol separates the caller's writes of `job` from the workers' reads, and the closure is
// `Sync`; all other fields are synchronization primitives.
unsafe impl Sync for PoolState {}
// SAFETY: as for `Sync`; the pointer is used only while the closure is borrowed by `WorkerThreads::run`.
unsafe impl Send for PoolState {}

impl PoolState {
    fn new(spins: u32) -> Self {
        Self {
            spins,
            ticket: CachePadded(AtomicU64::new(0)),
            job: UnsafeCell::new(None),
            remaining: CachePadded(AtomicUsize::new(0)),
            sleepers: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            start_lock: Mutex::new(()),
            started: Condvar::new(),
            done_lock: Mutex::new(()),
            done: Condvar::new(),
            panicked: Mutex::new(None),
        }
    }

    /// First half of a job on the caller: publishes the job and returns its epoch.
    fn publish(&self, job: Option<ErasedJob>, workers: usize) -> u64 {
        // SAFETY: `remaining` is 0, so no worker reads `job`, and `&mut WorkerThreads` makes the caller unique.
        unsafe { *self.job.get() = job };
        self.remaining.0.store(workers, Ordering::Relaxed);
        let epoch = (self.ticket.0.load(Ordering::Relaxed) >> SHARE_BITS) + 1;
        self.ticket
            .0
            .store(epoch << SHARE_BITS | 1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            drop(lock(&self.start_lock));
            self.started.notify_all();
        }
        epoch
    }

    /// Claims one of the shares `1..=workers` of `epoch`, if the epoch is current and a share is left.
    fn claim_share(&self, epoch: u64, workers: usize) -> Option<usize> {
        let last = epoch << SHARE_BITS | workers as u64;
        let mut ticket = self.ticket.0.load(Ordering::Acquire);
        while ticket >> SHARE_BITS == epoch && ticket <= last {
            let taken = self.ticket.0.compare_exchange_weak(
                ticket,
                ticket + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match taken {
                Ok(_) => return Some((ticket - (epoch << SHARE_BITS)) as usize),
                Err(now) => ticket = now,
            }
        }
        None
    }

    /// Second half of a job on the caller: waits until all shares are done.
    fn wait_for_workers(&self) {
        for _ in 0..self.spins {
            if self.remaining.0.load(Ordering::Acquire) == 0 {
                return;
            }
            hint::spin_loop();
        }
        let mut done_lock = lock(&self.done_lock);
        self.waiting.store(true, Ordering::SeqCst);
        while self.remaining.0.load(Ordering::SeqCst) != 0 {
            done_lock = self
                .done
                .wait(done_lock)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// Main loop of a worker.
    fn worker_loop(&self, workers: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait_for_epoch(seen);
            let Some(share) = self.claim_share(seen, workers) else {
                continue;
            };
            // SAFETY: a share of the current epoch is claimed and `remaining` not yet decremented, so the
            // caller does not write.
            let Some(job) = (unsafe { *self.job.get() }) else {
                return;
            };
            self.run_share(job.0, share);
        }
    }

    /// Runs a claimed share. The closure is a pointer and not a reference: a reference would have to be valid until
    /// this function returns, and the caller may drop the closure as soon as the last share is finished.
    fn run_share(&self, work: *const Work<'static>, share: usize) {
        // SAFETY: `WorkerThreads::run_job` keeps the closure borrowed until `remaining` is decremented below.
        let run = || unsafe { (*work)(share) };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            self.keep_panic(payload);
        }
        self.finish_share();
    }

    /// Waits for an epoch other than `seen` and returns the new epoch.
    fn wait_for_epoch(&self, seen: u64) -> u64 {
        let epoch = |order| self.ticket.0.load(order) >> SHARE_BITS;
        for _ in 0..self.spins {
            let epoch = epoch(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            hint::spin_loop();
        }
        let mut start_lock = lock(&self.start_lock);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while epoch(Ordering::SeqCst) == seen {
            start_lock = self
                .started
                .wait(start_lock)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        epoch(Ordering::Acquire)
    }

    /// Decrements `remaining`; the last share wakes a sleeping caller.
    fn finish_share(&self) {
        let last = self.remaining.0.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.waiting.load(Ordering::SeqCst) {
            drop(lock(&self.done_lock));
            self.done.notify_one();
        }
    }

    /// Keeps the first panic payload of a job; a later payload is dropped, and a panic of that drop is caught.
    fn keep_panic(&self, payload: Payload) {
        let mut kept = lock(&self.panicked);
        if kept.is_none() {
            *kept = Some(payload);
            return;
        }
        drop(kept);
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

fn thread_error(worker: usize, workers: usize, why: &io::Error) -> io::Error {
    let words = format!("no thread \"kernel-{worker}\" of {workers} (model.threads): {why}");
    io::Error::new(why.kind(), words)
}

/// Ignores poisoning: the mutexes guard no data that a panic could leave inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
