//! Model checking of the worker protocol: the same source over shuttle's threads and atomics, under many
//! schedules.
#![allow(clippy::duplicate_mod)] // The same file on purpose: the real code, other primitives.

#[path = "workers.rs"]
mod workers;

mod sync {
    pub(super) use shuttle::hint;
    pub(super) use shuttle::sync::atomic;
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use shuttle::thread;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use workers::WorkerThreads;

const SCHEDULES: usize = 2_000;

/// Schedules in which a share beside the caller's own ran on the caller, and on a worker.
static TAKEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Runs jobs of `workers + 1` shares each; every share runs once per job, before `run` returns. A `run_on_each`
/// in between runs on each thread.
fn jobs(workers: usize, spins: u32, jobs: usize) {
    let mut pool = WorkerThreads::new(workers, spins).expect("shuttle starts threads");
    assert_eq!(pool.count(), workers);
    let shares: Arc<Vec<AtomicUsize>> =
        Arc::new((0..=workers).map(|_| AtomicUsize::new(0)).collect());
    for job in 1..=jobs {
        let caller = shuttle::thread::current().id();
        pool.run(&|share| {
            shuttle::thread::yield_now();
            shares[share].fetch_add(1, Ordering::Relaxed);
            let here = shuttle::thread::current().id() == caller;
            assert!(here || share > 0, "the first is the caller's");
            if share > 0 {
                TAKEN[usize::from(here)].fetch_add(1, Ordering::Relaxed);
            }
        });
        for share in shares.iter() {
            assert_eq!(share.load(Ordering::Relaxed), job);
        }
        let came = Arc::new(std::sync::Mutex::new(Vec::new()));
        pool.run_on_each(&|_| {
            shuttle::thread::yield_now();
            came.lock().unwrap().push(shuttle::thread::current().id());
        });
        let came = came.lock().unwrap();
        assert_eq!(came.len(), workers + 1);
        let once = |who| came.iter().filter(|one| *one == who).count() == 1;
        assert!(came.iter().all(once), "each thread once");
    }
}

#[test]
fn every_share_runs_once_per_job_and_drop_joins() {
    for (workers, spins, count) in [(1, 0, 3), (2, 0, 2), (1, 2, 3), (2, 2, 2), (3, 1, 2)] {
        shuttle::check_random(move || jobs(workers, spins, count), SCHEDULES);
        shuttle::check_pct(move || jobs(workers, spins, count), SCHEDULES, 3);
    }
    let both = TAKEN.iter().all(|taken| taken.load(Ordering::Relaxed) > 0);
    assert!(
        both,
        "some shares were done for who did not come, and some were not"
    );
}

#[test]
fn threads_end_without_a_job() {
    shuttle::check_random(
        || drop(WorkerThreads::new(2, 1).expect("shuttle starts threads")),
        SCHEDULES,
    );
}
