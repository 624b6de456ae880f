//! The log on standard error, and the error message of a failed command. A server's log has a queue ([`LogQueue`]).
//!
//! The queue is between the threads that log and the thread that writes the log, so that a pipe whose reader takes
//! nothing stops no request.
//!
//! Lines wait as bytes in one buffer. The thread exchanges the buffer for its own empty one and writes without the lock. A
//! line that does not fit is dropped and counted; the count is a line of its own, after the lines that were kept.

use crate::config::{Config, Settings};
use crate::failure::Failure;
use crate::terminal_text::printable_lines;
use serde_json::json;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use wire::clock;
use wire::rfc3339::utc_millis;

/// Whether everything that the process says is JSON: from the reading of the settings on.
static IS_JSON: AtomicBool = AtomicBool::new(false);
/// The queue of a server's log.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// The log filter, which can be changed at any time.
pub(crate) struct LogFilter {
    replace: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send>,
}

impl LogFilter {
    /// Replaces the filter.
    pub(crate) fn set(&self, filter: &str) -> Result<(), String> {
        (self.replace)(parse_filter(filter)?)
    }
}

/// Decides whether everything that the process says is JSON, also the error of settings that are invalid. A server that
/// reads its settings again stays with what it started with.
pub(crate) fn use_json(is_json: bool) {
    if QUEUE.get().is_none() {
        IS_JSON.store(is_json, Ordering::Relaxed);
    }
}

/// Starts logging with the settings' filter.
pub(crate) fn start(settings: &Settings) -> Result<LogFilter, Failure> {
    start_into(settings, std::io::stderr)
}

/// Starts a server's log: a thread writes it, also panics, so that no one waits for its reader. [`flush`] ends it.
pub(crate) fn start_for_server(settings: &Settings) -> Result<LogFilter, Failure> {
    let queue = LogQueue::start(std::io::stderr(), |dropped| {
        let words = format!("{dropped} lines of the log were dropped: they were not read in time");
        own_line("WARN", &words)
    })?;
    let _ = QUEUE.set(queue.clone());
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        // With RUST_BACKTRACE.
        let trace = Backtrace::capture();
        let trace = match trace.status() {
            BacktraceStatus::Captured => format!("\n{trace}"),
            _ => String::new(),
        };
        let words = format!("thread {name}: {panic}{trace}");
        print_line(&own_line("ERROR", &words));
    }));
    start_into(settings, move || queue.clone())
}

/// Writes the last lines of a server's log.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush();
    }
}

fn start_into(
    settings: &Settings,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Result<LogFilter, Failure> {
    let filter = parse_filter(&settings.log.filter).map_err(Failure::User)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_colored())
        // A line that cannot be written is lost. The report of that would be printed to the same place, and panic there.
        .log_internal_errors(false)
        .with_writer(writer);
    let replace: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send> = if settings.log.json {
        let builder = builder.json().with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        Box::new(move |filter| handle.reload(filter).map_err(|why| why.to_string()))
    } else {
        let builder = builder.with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        Box::new(move |filter| handle.reload(filter).map_err(|why| why.to_string()))
    };
    Ok(LogFilter { replace })
}

/// Logs what of the environment looks like settings and is none.
pub(crate) fn tell_ignored(config: &Config) {
    if let Some(ignored) = config.ignored() {
        tracing::warn!("{ignored}");
    }
}

/// Whether lines have colors: on a terminal that can show them, unless `NO_COLOR` is set (<https://no-color.org>).
pub(crate) fn is_colored() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !set("NO_COLOR") && !is_dumb
}

/// The filter of `log.filter`.
///
/// # Errors
/// The text is no filter.
pub(crate) fn parse_filter(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter).map_err(|_| {
        format!(
            "must be error, warn, info, debug, trace or off, or parts such as info,server=debug; not {filter:?}"
        )
    })
}

/// Prints the error of a failed command.
pub(crate) fn print_failure(why: &Failure) {
    print_line(&if IS_JSON.load(Ordering::Relaxed) {
        json_line("ERROR", &why.to_string())
    } else {
        format!("millrace: {}", printable_lines(&why.to_string()))
    });
}

/// Prints a line where the log is.
fn print_line(line: &str) {
    match QUEUE.get() {
        Some(queue) => queue.push(format!("{line}\n").as_bytes()),
        None => {
            // With standard error closed, too, the exit code reports the failure.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

/// A line of this module's own, in the form of the log's.
fn own_line(level: &str, message: &str) -> String {
    if IS_JSON.load(Ordering::Relaxed) {
        json_line(level, message)
    } else {
        let timestamp = utc_millis(clock::wall(clock::now()));
        format!(
            "{timestamp} {level:>5} millrace: {}",
            printable_lines(message)
        )
    }
}

/// Prints lines of the server on standard output: as they are, or as JSON where the log is JSON.
pub(crate) fn print_lines(lines: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for line in lines.lines() {
        if IS_JSON.load(Ordering::Relaxed) {
            writeln!(out, "{}", json_line("INFO", line))?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(())
}

/// A line in the form of the log's own.
fn json_line(level: &str, message: &str) -> String {
    let timestamp = utc_millis(clock::wall(clock::now()));
    json!({"timestamp": timestamp, "level": level, "fields": {"message": message}, "target": "millrace"})
        .to_string()
}

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
    use std::io;
    use std::io::Write;
    use std::sync::{Arc, Condvar, Mutex};

    #[test]
    fn colored_log_is_compiled_in() {
        // Panics without the feature `ansi`, as every command on a terminal would.
        let _subscriber = tracing_subscriber::fmt().with_ansi(true);
    }

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
