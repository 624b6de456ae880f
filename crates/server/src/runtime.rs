//! The io threads.
//!
//! All of them are there before the server listens. Tokio makes its workers in [`Builder::build`], where it panics if the
//! system refuses the first and goes on without a word if it refuses another; its threads for blocking work it makes
//! when they are needed, and what waits for one that the system refuses waits for ever. So the threads are tried out
//! first, and those for long prompts are made at once and stay.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::{Builder, Runtime};

/// Threads for long prompts, beside the io threads.
const PREPARE_THREADS: usize = 2;
/// How long such a thread stays without work: as long as the server.
const PREPARE_THREAD_STAYS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// How long they may take to start, where the system gave threads a moment before.
const START_TIME_MAX: Duration = Duration::from_secs(10);

/// A runtime of `threads` io threads, and two more for long prompts, all named `io-*`. Their number does not depend on
/// connections or streams.
///
/// # Errors
/// The system has no threads or no event queue to give.
pub fn io_runtime(threads: usize) -> io::Result<Runtime> {
    let threads = threads.max(1);
    try_threads(threads + PREPARE_THREADS)?;
    let next = AtomicUsize::new(0);
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(PREPARE_THREADS)
        .thread_keep_alive(PREPARE_THREAD_STAYS)
        .thread_name_fn(move || format!("io-{}", next.fetch_add(1, Ordering::Relaxed)))
        .enable_io()
        .enable_time()
        .build()?;
    start_prepare_threads(&runtime)?;
    Ok(runtime)
}

/// Makes so many threads at one time, and lets them go.
fn try_threads(count: usize) -> io::Result<()> {
    thread::scope(|scope| {
        // Dropped when all are made, or one is not: then they end.
        let mut hold = Vec::with_capacity(count);
        for made in 0..count {
            let (held, until) = sync_channel::<()>(0);
            let thread = thread::Builder::new().name("io-trial".to_owned());
            let tried = thread.spawn_scoped(scope, move || {
                let _ = until.recv();
            });
            tried.map_err(|why| no_threads(made, count, &why))?;
            hold.push(held);
        }
        Ok(())
    })
}

/// Has each thread for long prompts begin a piece of work before any may end its own.
fn start_prepare_threads(runtime: &Runtime) -> io::Result<()> {
    let (begun, begins) = sync_channel(PREPARE_THREADS);
    let mut hold = Vec::with_capacity(PREPARE_THREADS);
    for _ in 0..PREPARE_THREADS {
        let begun = begun.clone();
        let (held, until) = sync_channel::<()>(0);
        runtime.spawn_blocking(move || {
            let _ = begun.send(());
            let _ = until.recv();
        });
        hold.push(held);
    }
    for made in 0..PREPARE_THREADS {
        let begin = begins.recv_timeout(START_TIME_MAX);
        begin.map_err(|why: RecvTimeoutError| no_threads(made, PREPARE_THREADS, &why))?;
    }
    Ok(())
}

fn no_threads(made: usize, count: usize, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!(
        "the system gives {made} of {count} io threads: {why} (server.io_threads asks for them; the limit is that of \
         processes, ulimit -u, or pids.max of the control group)"
    ))
}
