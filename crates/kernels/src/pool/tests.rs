//! The pool with real threads.

use super::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const THREADS: [usize; 4] = [1, 2, 3, 8];

#[test]
fn run_reaches_every_worker_once() {
    for threads in THREADS {
        let mut pool = Pool::new(threads);
        let hits: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
        for job in 1..=500 {
            pool.run(|worker| {
                hits[worker].fetch_add(1, Ordering::Relaxed);
            });
            assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == job));
        }
    }
}

#[test]
fn run_on_each_runs_once_per_thread() {
    let mut pool = Pool::new(3);
    for _ in 0..200 {
        let came = Mutex::new(vec![]);
        pool.run_on_each(|| {
            let name = std::thread::current().name().map(str::to_owned);
            came.lock().unwrap().push(name.unwrap_or_default());
        });
        let mut came = came.into_inner().unwrap();
        came.retain(|name| name.starts_with("kernel-"));
        came.sort();
        assert_eq!(came, ["kernel-1", "kernel-2"]);
    }
}

/// With more threads than cores, workers sleep between jobs and miss a job that takes no time.
#[test]
fn absent_workers_delay_nothing() {
    let mut pool = Pool::new(64);
    let caller = std::thread::current().id();
    let [done, by_caller] = [0; 2].map(AtomicUsize::new);
    let mut job = 0;
    // A busy machine may wake the workers before the caller has come to their shares, and a single core always may.
    let is_single = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    while job < 1000 || !is_single && by_caller.load(Ordering::Relaxed) == job {
        job += 1;
        assert!(job < 100_000, "the caller did no share of an absent worker");
        pool.run(|share| {
            done.fetch_add(1, Ordering::Relaxed);
            let here = std::thread::current().id() == caller;
            assert!(here || share > 0, "the first is the caller's");
            by_caller.fetch_add(usize::from(here), Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 64 * job, "each share, once");
    }
}

#[test]
fn panic_of_a_share_resumes_after_all_shares() {
    for threads in THREADS {
        let mut pool = Pool::new(threads);
        for culprit in 0..threads {
            let finished = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(|worker| {
                    if worker == culprit {
                        std::panic::panic_any(worker);
                    }
                    finished.fetch_add(1, Ordering::Relaxed);
                });
            }));
            let payload = result.expect_err("the panic arrives");
            assert_eq!(payload.downcast_ref::<usize>(), Some(&culprit));
            assert_eq!(finished.load(Ordering::Relaxed), threads - 1);
        }
        let after = AtomicUsize::new(0);
        pool.run(|_| {
            after.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(after.load(Ordering::Relaxed), threads, "still usable");
    }
}

#[test]
fn panics_of_all_shares_leave_the_pool_usable() {
    let mut pool = Pool::new(4);
    let result = catch_unwind(AssertUnwindSafe(|| pool.run(|w| std::panic::panic_any(w))));
    let payload = result.expect_err("the panic arrives");
    assert_eq!(
        payload.downcast_ref::<usize>(),
        Some(&0),
        "the caller's own"
    );
    pool.run(|_| {});
}

#[test]
fn ranges_cover_everything_once_at_aligned_cuts() {
    for threads in THREADS {
        let mut pool = Pool::new(threads);
        for (n, align) in [
            (0, 1),
            (1, 1),
            (7, 1),
            (64, 16),
            (65, 16),
            (5, 16),
            (100, 3),
        ] {
            let hits: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            pool.ranges(n, align, |range| {
                assert_eq!(range.start % align, 0);
                for i in range {
                    hits[i].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(
                hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1),
                "{threads} threads, {n} by {align}"
            );
        }
    }
}

#[test]
fn rows_receive_their_own_index() {
    for threads in THREADS {
        let mut pool = Pool::new(threads);
        for (rows, width) in [(0, 4), (3, 4), (100, 64), (1, 9000), (17, 999)] {
            let mut a = vec![0.0; rows * width];
            pool.rows(&mut a, width, |row, slice| slice.fill(row as f32 + 1.0));
            let mut b = vec![0.0; rows * 3];
            let mut c = vec![0.0; rows * width];
            pool.rows2((&mut b, 3), (&mut c, width), |row, b, c| {
                b.fill(row as f32);
                c.fill(row as f32 + 1.0);
            });
            assert_eq!(a, c);
            for row in 0..rows {
                assert!(
                    a[row * width..][..width]
                        .iter()
                        .all(|x| *x == row as f32 + 1.0)
                );
                assert!(b[row * 3..][..3].iter().all(|x| *x == row as f32));
            }
        }
    }
}

#[test]
fn tasks_run_once_with_a_state_per_worker() {
    for threads in THREADS {
        let mut pool = Pool::new(threads);
        let mut states = vec![Vec::new(); threads];
        pool.tasks(&mut states, 1000, Vec::push);
        let mut done: Vec<usize> = states.concat();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..1000));
    }
}

#[test]
#[should_panic(expected = "whole rows")]
fn ragged_rows_are_rejected() {
    Pool::new(1).rows(&mut [0.0; 7], 2, |_, _| {});
}

#[test]
fn guided_ranges_cover_everything_once_in_whole_grains() {
    for threads in THREADS {
        let mut pool = Pool::new(threads);
        for (n, grain) in [(0, 1), (1, 4), (7, 2), (100, 1), (1001, 8), (4096, 64)] {
            let visits: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            pool.guided(n, grain, |range| {
                let whole = range.start.is_multiple_of(grain)
                    && (range.end.is_multiple_of(grain) || range.end == n);
                assert!(whole && !range.is_empty(), "{range:?} of {n} by {grain}");
                for i in range {
                    visits[i].fetch_add(1, Ordering::Relaxed);
                }
            });
            let once = visits
                .iter()
                .all(|visit| visit.load(Ordering::Relaxed) == 1);
            assert!(once, "{n} by {grain} on {threads}");
        }
    }
}

#[test]
fn more_threads_than_a_ticket_can_number_are_refused() {
    let refused = Pool::try_new(1 << 16).err().map(|why| why.to_string());
    assert_eq!(refused.as_deref(), Some("65536 threads, at most 65535"));
}
