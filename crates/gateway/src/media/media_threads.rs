//! The threads that decode and resize images, so that neither I/O threads nor those of long prompts do.
//!
//! Two threads take jobs from a bounded queue. A job whose request is gone is skipped, and one that runs learns through its
//! clock that nothing waits for it. Decoding of both together has a bound of bytes.

use crate::locks::lock;
use generate::error::ApiError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use wire::clock;

/// Threads: one image of a request may be decoded while that of another is resized.
const THREADS: usize = 2;
/// Images that wait for a thread.
const QUEUE_MAX: usize = 256;
/// When to try again after a rejection: a thread needs some hundred milliseconds for an image.
const RETRY_AFTER: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

/// The threads, which begin with the first job, and their counters.
#[derive(Default)]
pub struct MediaThreads {
    queue: Mutex<Option<SyncSender<Job>>>,
    room: Arc<DecodeRoom>,
    stats: Arc<MediaStats>,
}

/// Work so far.
#[derive(Debug, Default)]
struct MediaStats {
    prepared: AtomicU64,
    failed: AtomicU64,
    busy_ns: AtomicU64,
}

/// Counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCounts {
    /// Images that were decoded and resized.
    pub prepared: u64,
    /// Images that could not be, and those whose request ended before.
    pub failed: u64,
    /// Time of the threads in jobs.
    pub busy: Duration,
}

/// The clock of a job: time that a processor has spent on it, so that the answer does not depend on what else runs; endless
/// once nothing waits for the result.
pub type Elapsed<'a> = &'a dyn Fn() -> Duration;

impl MediaThreads {
    /// Runs `work` on a thread, while all running work decodes at most `room_max` bytes. `decode_bytes` of one job above that
    /// bound run alone. Dropping the future ends the work at its next look at the clock.
    ///
    /// # Errors
    /// The queue is full, the system has no thread, the work failed or panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        (decode_bytes, room_max): (u64, u64),
        work: impl FnOnce(Elapsed<'_>) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (sender, receiver) = oneshot::channel();
        let (room, stats) = (Arc::clone(&self.room), Arc::clone(&self.stats));
        let job = move || {
            if sender.is_closed() {
                stats.failed.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let share = room.wait(decode_bytes, room_max);
            let (begun, spent) = (clock::now(), clock::thread_time());
            let elapsed = || {
                if sender.is_closed() {
                    Duration::MAX
                } else {
                    clock::thread_time().saturating_sub(spent)
                }
            };
            let done = catch_unwind(AssertUnwindSafe(|| work(&elapsed)));
            drop(share);
            let done = done.unwrap_or_else(|_| Err(panicked()));
            stats.count(done.is_ok(), since(begun));
            // Nothing may wait for the result any more.
            let _ = sender.send(done);
        };
        self.send(Box::new(job))?;
        receiver.await.unwrap_or_else(|_| Err(panicked()))
    }

    /// The counters.
    pub fn counts(&self) -> MediaCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MediaCounts {
            prepared: read(&self.stats.prepared),
            failed: read(&self.stats.failed),
            busy: Duration::from_nanos(read(&self.stats.busy_ns)),
        }
    }

    fn send(&self, job: Job) -> Result<(), ApiError> {
        let mut queue = lock(&self.queue);
        let sender = match &mut *queue {
            Some(sender) => sender,
            none => none.insert(start().map_err(|why| {
                tracing::error!("no media thread: {why}");
                full("the system has no thread for images")
            })?),
        };
        match sender.try_send(job) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                Err(full("too many images wait for being decoded"))
            }
        }
    }
}

impl MediaStats {
    fn count(&self, is_ok: bool, busy: Duration) {
        let counter = if is_ok { &self.prepared } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        let busy_ns = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }
}

/// The error of a request that finds no room.
pub(crate) fn full(why: &str) -> ApiError {
    ApiError::capacity("media_full", why, RETRY_AFTER)
}

/// Starts the threads, which end with the queue's sender.
fn start() -> std::io::Result<SyncSender<Job>> {
    let (sender, receiver) = sync_channel(QUEUE_MAX);
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..THREADS {
        let receiver = Arc::clone(&receiver);
        std::thread::Builder::new()
            .name("media".to_owned())
            .spawn(move || while run_next(&receiver) {})?;
    }
    Ok(sender)
}

/// Runs the next job; false: there will be none.
fn run_next(receiver: &Mutex<Receiver<Job>>) -> bool {
    let job = {
        let receiver = lock(receiver);
        receiver.recv()
    };
    job.map(|job| job()).is_ok()
}

fn since(begun: Instant) -> Duration {
    clock::now().saturating_duration_since(begun)
}

fn panicked() -> ApiError {
    ApiError::ours("internal_error", "the image could not be prepared")
}

/// Bytes that decoding holds on all threads.
#[derive(Debug, Default)]
struct DecodeRoom {
    used: Mutex<u64>,
    returned: Condvar,
}

/// Bytes of one decoding.
struct DecodeShare<'a> {
    room: &'a DecodeRoom,
    bytes: u64,
}

impl DecodeRoom {
    /// Waits until `bytes` are within `max`, or nothing else is decoded.
    fn wait(&self, bytes: u64, max: u64) -> DecodeShare<'_> {
        let used = lock(&self.used);
        let is_full = |used: &mut u64| *used > 0 && used.saturating_add(bytes) > max;
        let used = self.returned.wait_while(used, is_full);
        *used.unwrap_or_else(PoisonError::into_inner) += bytes;
        DecodeShare { room: self, bytes }
    }
}

impl Drop for DecodeShare<'_> {
    fn drop(&mut self) {
        let mut used = lock(&self.room.used);
        *used -= self.bytes;
        self.room.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
    }

    #[test]
    fn results_errors_and_panics_come_back() {
        let threads = MediaThreads::default();
        runtime().block_on(async {
            let found = threads.run((1, 2), |_| Ok(7)).await;
            assert_eq!(found.ok(), Some(7));
            let refused = |_: Elapsed<'_>| Err::<(), _>(ApiError::bad_request("x", "no image"));
            let why = threads.run((1, 2), refused).await.expect_err("an error");
            assert_eq!(why.message, "no image");
            let panic = |_: Elapsed<'_>| -> Result<(), ApiError> { panic!("a test's panic") };
            let why = threads.run((1, 2), panic).await.expect_err("an error");
            assert_eq!(why.code, "internal_error");
            assert_eq!(threads.run((9, 2), |_| Ok(8)).await.ok(), Some(8));
        });
        let counts = threads.counts();
        assert_eq!((counts.prepared, counts.failed), (2, 2));
    }

    #[test]
    fn work_of_a_request_that_is_gone_ends() {
        let threads = Arc::new(MediaThreads::default());
        let (report, reported) = sync_channel(2);
        let work = move |elapsed: Elapsed<'_>| -> Result<(), ApiError> {
            report.send("begun").map_err(|_| panicked())?;
            while elapsed() < Duration::MAX {
                std::thread::yield_now();
            }
            report.send("ended").map_err(|_| panicked())
        };
        let runtime = runtime();
        runtime.block_on(async {
            let mut run = Box::pin(threads.run((1, 2), work));
            assert!(run.as_mut().now_or_never().is_none());
            assert_eq!(reported.recv(), Ok("begun"));
        });
        assert_eq!(reported.recv(), Ok("ended"));
    }

    /// A thread that waits spends nothing: load does not end a decode.
    #[test]
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    fn time_of_work_is_that_of_a_processor() {
        const WAITED: Duration = Duration::from_millis(100);
        let threads = MediaThreads::default();
        let wait = |elapsed: Elapsed<'_>| {
            let begun = clock::now();
            let other = std::thread::spawn(move || {
                while since(begun) < WAITED {
                    std::thread::yield_now();
                }
            });
            other.join().map_err(|_| panicked())?;
            Ok(elapsed())
        };
        let spent = runtime().block_on(threads.run((1, 2), wait));
        let spent = spent.expect("no error");
        assert!(spent < WAITED, "{spent:?}");
    }

    #[test]
    fn full_queue_is_a_rejection() {
        let threads = MediaThreads::default();
        let (release, held) = sync_channel::<()>(1);
        let held = Arc::new(Mutex::new(held));
        let runtime = runtime();
        runtime.block_on(async {
            let mut waiting = Vec::new();
            let rejected = loop {
                let held = Arc::clone(&held);
                let work = move |_: Elapsed<'_>| {
                    let held = lock(&held);
                    held.recv().map_err(|_| panicked())
                };
                let mut run = Box::pin(threads.run((0, 1), work));
                match run.as_mut().now_or_never() {
                    Some(done) => break done.expect_err("a rejection"),
                    None => waiting.push(run),
                }
            };
            assert!(rejected.retry_after.is_some());
            assert!((QUEUE_MAX..=QUEUE_MAX + THREADS).contains(&waiting.len()));
            drop(release);
        });
    }
}
