//! How the threads of a pool meet.
//!
//! # States
//!
//! One *caller* and `workers` *workers* share `ticket`, `job` (the closure of the present epoch; `None` sends
//! the workers home) and `remaining` (shares beside the caller's own that are not done). The ticket is
//! the number of the present *epoch* (how many jobs there were) and of the next share that nobody took.
//! Between jobs all shares are taken and `remaining` is 0.
//!
//! # Protocol
//!
//! The caller: writes `job`; sets `remaining = workers`; writes a ticket of the next epoch and share 1; wakes
//! the workers if `sleepers` is not 0; does share 0; takes and does what shares are left, so that a hand whose core
//! is somebody else's just now holds nobody up; waits until `remaining` is 0.
//!
//! A hand: waits until the ticket's epoch differs from what it has seen; takes a share by raising the ticket,
//! if there is one; reads `job`; does the share; lowers `remaining`; if it was the last and the caller is
//! `waiting`, wakes it. It takes one share of an epoch at most.
//!
//! Waiting is a bounded number of looks, then sleep on a condition variable.
//!
//! # What could go wrong, and why it does not
//!
//! * *A share is taken twice, or in an epoch that is over.* Taking is one compare-and-swap of a ticket that holds
//!   both numbers, and epochs never come again.
//! * *`job` is written while it is read.* A hand reads it between the taking of a share (which acquires what the
//!   ticket published) and its own lowering of `remaining`; the caller writes only while `remaining` is
//!   0, which it read with acquire order from that very lowering.
//! * *The closure dies while a hand runs it.* The caller leaves `run` only after `remaining == 0`,
//!   also when its own share panics: the panic is caught and raised again afterwards.
//! * *A hand sleeps through an epoch.* Then the caller did its share. Only where each hand has to come itself
//!   ([`WorkerThreads::run_on_each`], and the way home) does the caller leave the shares to them.
//! * *A hand falls asleep just as a job comes.* It counts itself into `sleepers`, then looks at
//!   the ticket once more; the caller writes the ticket, then looks at `sleepers`. All four are
//!   sequentially consistent, so at least one of the two sees the other. If the caller sees the
//!   sleeper, it passes through the lock before it notifies: the hand, which holds the lock from
//!   its last look until the condition variable has it, is then surely asleep and is woken.
//! * *The caller falls asleep just as the last hand ends.* The same, with `waiting` and `remaining`.
//! * *A hand notifies late*, when the caller has already left or waits for the next job. A wake
//!   without news is harmless: both sides look again in a loop.
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
    /// Starts `workers` threads, `kernel-1` and on, which look `spins` times before they sleep.
    pub(super) fn new(workers: usize, spins: u32) -> io::Result<Self> {
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

    /// Threads beside the caller.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Runs `work(0)` here and `work(1..)` on whoever comes, here if nobody does, and returns when all are done.
    pub(super) fn run(&mut self, work: &Work<'_>) {
        self.run_job(work, true);
    }

    /// Runs `work(0)` here and `work(1..)` once on each hand, and returns when all are done.
    pub(super) fn run_on_each(&mut self, work: &Work<'_>) {
        self.run_job(work, false);
    }

    fn run_job(&mut self, work: &Work<'_>, caller_helps: bool) {
        // SAFETY: only the lifetime changes. The workers use the closure before they lower
        // `remaining`, and this function does not return or unwind before `remaining` is 0.
        let job = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        let workers = self.threads.len();
        let epoch = self.state.publish(Some(ErasedJob(job)), workers);
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        if caller_helps {
            while let Some(share) = self.state.claim_share(epoch, workers) {
                self.state.run_share(work, share);
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
            // A hand catches every panic of a job, so it ends in no other way.
            let _ = thread.join();
        }
    }
}

/// The closure of one epoch.
#[derive(Clone, Copy)]
struct ErasedJob(*const Work<'static>);

/// On a line of its own, so that looking at it does not slow its neighbors' writers.
#[repr(align(128))]
struct CacheLine<T>(T);

/// Bits of a ticket that number a share; the others number the epoch.
const SHARE_BITS: u32 = 16;

struct PoolState {
    spins: u32,
    ticket: CacheLine<AtomicU64>,
    job: UnsafeCell<Option<ErasedJob>>,
    remaining: CacheLine<AtomicUsize>,
    sleepers: AtomicUsize,
    waiting: AtomicBool,
    start_lock: Mutex<()>,
    started: Condvar,
    done_lock: Mutex<()>,
    done: Condvar,
    panicked: Mutex<Option<Payload>>,
}

// SAFETY: `job` is written by the caller and read by workers at times that the protocol keeps apart,
// and the closure it points to is `Sync`; everything else is made to be shared.
unsafe impl Sync for PoolState {}
// SAFETY: as above; the pointer is used only while the closure is borrowed by `WorkerThreads::run`.
unsafe impl Send for PoolState {}

impl PoolState {
    fn new(spins: u32) -> Self {
        Self {
            spins,
            ticket: CacheLine(AtomicU64::new(0)),
            job: UnsafeCell::new(None),
            remaining: CacheLine(AtomicUsize::new(0)),
            sleepers: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            start_lock: Mutex::new(()),
            started: Condvar::new(),
            done_lock: Mutex::new(()),
            done: Condvar::new(),
            panicked: Mutex::new(None),
        }
    }

    /// The caller's first half: publishes a job, and returns its epoch.
    fn publish(&self, job: Option<ErasedJob>, workers: usize) -> u64 {
        // SAFETY: `remaining` is 0, so no hand reads `job`, and there is one caller (`&mut WorkerThreads`).
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

    /// Takes a share of an epoch, if it is the present one and one of `1..=workers` is left.
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

    /// The caller's second half.
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

    /// A hand's life.
    fn worker_loop(&self, workers: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait_for_epoch(seen);
            let Some(share) = self.claim_share(seen, workers) else {
                continue;
            };
            // SAFETY: a share of the present epoch was taken and `remaining` not yet lowered: nobody writes.
            let Some(job) = (unsafe { *self.job.get() }) else {
                return;
            };
            // SAFETY: `WorkerThreads::run_job` keeps the closure borrowed until `remaining` is lowered below.
            self.run_share(unsafe { &*job.0 }, share);
        }
    }

    /// Does a share that was taken.
    fn run_share(&self, work: &Work<'_>, share: usize) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(share))) {
            self.keep_panic(payload);
        }
        self.finish_share();
    }

    /// Waits for an epoch other than `seen` and returns it.
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

    /// Lowers `remaining`; whoever is last wakes a sleeping caller.
    fn finish_share(&self) {
        let last = self.remaining.0.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.waiting.load(Ordering::SeqCst) {
            drop(lock(&self.done_lock));
            self.done.notify_one();
        }
    }

    /// Keeps the first payload of a job; a later one is dropped where its own panic does no harm.
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

/// A poisoned lock guards nothing that a panic could have left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
