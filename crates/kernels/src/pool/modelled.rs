//! The crew, compiled a second time over shuttle's threads and atomics, under many schedules.
#![allow(clippy::duplicate_mod)] // The same file on purpose: the real code, other primitives.

#[path = "crew.rs"]
mod crew;

mod sync {
    pub(super) use shuttle::hint;
    pub(super) use shuttle::sync::atomic;
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use shuttle::thread;
}

use crew::Crew;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SCHEDULES: usize = 2_000;

/// Schedules in which a share beside the caller's own ran on the caller, and on a hand.
static TAKEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Jobs of `hands + 1` shares each; every share runs once per job, before `run` returns. One in between
/// has each thread come.
fn jobs(hands: usize, spins: u32, jobs: usize) {
    let mut crew = Crew::new(hands, spins).expect("shuttle starts threads");
    assert_eq!(crew.hands(), hands);
    let shares: Arc<Vec<AtomicUsize>> =
        Arc::new((0..=hands).map(|_| AtomicUsize::new(0)).collect());
    for job in 1..=jobs {
        let caller = shuttle::thread::current().id();
        crew.run(&|share| {
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
        crew.run_on_each(&|_| {
            shuttle::thread::yield_now();
            came.lock().unwrap().push(shuttle::thread::current().id());
        });
        let came = came.lock().unwrap();
        assert_eq!(came.len(), hands + 1);
        let once = |who| came.iter().filter(|one| *one == who).count() == 1;
        assert!(came.iter().all(once), "each thread once");
    }
}

#[test]
fn every_share_runs_once_per_job_and_drop_joins() {
    for (hands, spins, count) in [(1, 0, 3), (2, 0, 2), (1, 2, 3), (2, 2, 2), (3, 1, 2)] {
        shuttle::check_random(move || jobs(hands, spins, count), SCHEDULES);
        shuttle::check_pct(move || jobs(hands, spins, count), SCHEDULES, 3);
    }
    let both = TAKEN.iter().all(|taken| taken.load(Ordering::Relaxed) > 0);
    assert!(
        both,
        "some shares were done for who did not come, and some were not"
    );
}

#[test]
fn a_crew_without_work_goes_home() {
    shuttle::check_random(
        || drop(Crew::new(2, 1).expect("shuttle starts threads")),
        SCHEDULES,
    );
}
