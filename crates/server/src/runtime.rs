//! The I/O threads.
//!
//! All threads are created before the server listens. Tokio creates worker threads in [`Builder::build`], which
//! panics if the system refuses the first thread and continues silently if the system refuses another. Tokio creates
//! blocking threads on demand, and a task whose thread is refused never runs. Therefore the number of threads is
//! tried first, and the threads for long prompts are started at once and kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::{Builder, Runtime};

/// Threads for long prompts, in addition to the I/O threads.
const PREPARE_THREADS: usize = 2;
/// Idle time after which a thread for long prompts ends: longer than any server runs.
const PREPARE_THREAD_STAYS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Time that the threads for long prompts may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(10);

/// A runtime of `threads` I/O threads and two threads for long prompts, all named `io-*`. Their number does not
/// depend on connections or streams.
///
/// # Errors
/// The system cannot create the threads or the event queue.
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

/// Starts `count` threads at the same time, and ends them.
fn try_threads(count: usize) -> io::Result<()> {
    thread::scope(|scope| {
        // The threads end when this vector is dropped: after the last one has started, or after a failure.
        let mut hold = Vec::with_capacity(count);
        for started in 0..count {
            let (release, released) = sync_channel::<()>(0);
            let thread = thread::Builder::new().name("io-trial".to_owned());
            let tried = thread.spawn_scoped(scope, move || {
                let _ = released.recv();
            });
            tried.map_err(|why| no_threads(started, count, &why))?;
            hold.push(release);
        }
        Ok(())
    })
}

/// Starts the threads for long prompts: each begins a task, and no task ends before all have begun.
fn start_prepare_threads(runtime: &Runtime) -> io::Result<()> {
    let (begun, begins) = sync_channel(PREPARE_THREADS);
    let mut hold = Vec::with_capacity(PREPARE_THREADS);
    for _ in 0..PREPARE_THREADS {
        let begun = begun.clone();
        let (release, released) = sync_channel::<()>(0);
        runtime.spawn_blocking(move || {
            let _ = begun.send(());
            let _ = released.recv();
        });
        hold.push(release);
    }
    for started in 0..PREPARE_THREADS {
        let begin = begins.recv_timeout(START_TIME_MAX);
        begin.map_err(|why: RecvTimeoutError| no_threads(started, PREPARE_THREADS, &why))?;
    }
    Ok(())
}

fn no_threads(started: usize, count: usize, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!(
        "the system started {started} of {count} I/O threads: {why} (server.io_threads sets the number; the limit is that of \
         processes, ulimit -u, or pids.max of the control group)"
    ))
}
