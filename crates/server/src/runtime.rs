//! The io threads.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Builder, Runtime};

/// Threads for long prompts, beside the io threads: started when needed, never more.
const PREPARE_THREADS: usize = 2;

/// A runtime of `threads` io threads, and at most two more for long prompts, all named `io-*`. Their
/// number does not depend on connections or streams.
///
/// # Errors
/// The system has no threads or no event queue to give.
pub fn io_runtime(threads: usize) -> io::Result<Runtime> {
    let next = AtomicUsize::new(0);
    Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .max_blocking_threads(PREPARE_THREADS)
        .thread_name_fn(move || format!("io-{}", next.fetch_add(1, Ordering::Relaxed)))
        .enable_io()
        .enable_time()
        .build()
}
