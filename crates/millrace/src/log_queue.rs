//! The queue between the threads that log and the thread that writes the log, so that a pipe whose reader takes nothing
//! stops no request.
//!
//! Lines wait as bytes in one buffer. The thread exchanges the buffer for its own empty one and writes without the lock. A
//! line that does not fit is dropped and counted; the count is a line of its own, after the lines that were kept.

use crate::failure::Failure;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of log lines that wait to be written.
const LOG_QUEUE_BYTES_MAX: usize = 1 << 20;
/// Capacity that an empty buffer keeps.
const KEPT_BYTES: usize = 64 << 10;
/// Stack of the thread, which only writes.
const STACK_BYTES: usize = 256 << 10;
/// Time for the last lines at the end of the process: a pipe that no one reads does not keep the process.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// Lines of the log that wait to be written by the thread `log`.
#[derive(Clone)]
pub(crate) struct LogQueue(Arc<SharedLines>);

struct SharedLines {
    lines: Mutex<WaitingLines>,
    /// There is something to write.
    news: Condvar,
    /// Everything is written.
    idle: Condvar,
}

#[derive(Default)]
struct WaitingLines {
    bytes: Vec<u8>,
    dropped: u64,
    is_writing: bool,
}

impl WaitingLines {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.dropped == 0
    }
}

impl LogQueue {
    /// Starts the thread, which writes to `out`. `dropped_line` makes the line about so many dropped lines.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start(
        out: impl Write + Send + 'static,
        dropped_line: fn(u64) -> String,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(SharedLines {
            lines: Mutex::default(),
            news: Condvar::new(),
            idle: Condvar::new(),
        });
        let written = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("log".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || write_lines(&written, out, dropped_line))
            .map_err(|why| Failure::no_thread("log", &why))?;
        Ok(Self(shared))
    }

    /// Adds a line with its line break, or counts it as dropped. Does not wait for a reader.
    pub(crate) fn push(&self, line: &[u8]) {
        let mut waiting = lock(&self.0.lines);
        if waiting.bytes.len() + line.len() > LOG_QUEUE_BYTES_MAX {
            waiting.dropped += 1;
        } else {
            waiting.bytes.extend_from_slice(line);
        }
        self.0.news.notify_one();
    }

    /// Waits until all lines are written, for [`FLUSH_TIME`] at most.
    pub(crate) fn flush(&self) {
        let waiting = lock(&self.0.lines);
        let is_busy = |lines: &mut WaitingLines| lines.is_writing || !lines.is_empty();
        let flushed = self.0.idle.wait_timeout_while(waiting, FLUSH_TIME, is_busy);
        drop(flushed);
    }
}

/// One line of the log, as the formatter writes it.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines until the process ends.
fn write_lines(shared: &SharedLines, mut out: impl Write, dropped_line: fn(u64) -> String) {
    let mut bytes = Vec::new();
    loop {
        let mut waiting = lock(&shared.lines);
        waiting.is_writing = false;
        if waiting.is_empty() {
            shared.idle.notify_all();
        }
        let nothing = |lines: &mut WaitingLines| lines.is_empty();
        let news = shared.news.wait_while(waiting, nothing);
        let mut waiting = news.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.bytes, &mut bytes);
        let dropped = std::mem::take(&mut waiting.dropped);
        waiting.is_writing = true;
        drop(waiting);
        // A line that cannot be written is lost: the log is the only place to report that.
        let _ = out.write_all(&bytes);
        if dropped > 0 {
            let _ = writeln!(out, "{}", dropped_line(dropped));
        }
        let _ = out.flush();
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES);
    }
}

fn lock(lines: &Mutex<WaitingLines>) -> MutexGuard<'_, WaitingLines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{LOG_QUEUE_BYTES_MAX, LogQueue};
    use std::io::{self, Write};
    use std::sync::{Arc, Condvar, Mutex};

    /// A reader that takes nothing until it is opened.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<GateState>, Condvar)>);

    #[derive(Default)]
    struct GateState {
        is_open: bool,
        bytes: Vec<u8>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (state, opened) = &*self.0;
            let mut state = opened
                .wait_while(state.lock().unwrap(), |state| !state.is_open)
                .unwrap();
            state.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_counted() {
        let gate = Gate::default();
        let queue = LogQueue::start(gate.clone(), |n| format!("{n} dropped")).unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let sent = 3 * (LOG_QUEUE_BYTES_MAX / line.len()) as u64;
        for _ in 0..sent {
            queue.push(&line);
        }
        queue.flush();
        assert!(
            gate.0.0.lock().unwrap().bytes.is_empty(),
            "flush has a bound"
        );
        gate.0.0.lock().unwrap().is_open = true;
        gate.0.1.notify_all();
        queue.push(b"last\n");
        queue.flush();
        let text = String::from_utf8(gate.0.0.lock().unwrap().bytes.clone()).unwrap();
        assert!(text.len() <= 2 * LOG_QUEUE_BYTES_MAX + 64, "{}", text.len());
        let kept = text.lines().filter(|line| line.starts_with('x')).count() as u64;
        let is_last_kept = u64::from(text.contains("last\n"));
        let counts = text
            .lines()
            .filter_map(|line| line.strip_suffix(" dropped"));
        let dropped: u64 = counts.map(|count| count.parse::<u64>().unwrap()).sum();
        assert_eq!(
            kept + is_last_kept + dropped,
            sent + 1,
            "no line is lost unseen"
        );
        assert!(dropped > 0);
    }
}
