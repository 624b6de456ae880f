//! The log on standard error, and the error message of a failed command. A server's log has a queue ([`LogQueue`]).

use crate::config::{Config, Settings};
use crate::failure::Failure;
use crate::log_queue::LogQueue;
use crate::terminal_text::printable_lines;
use serde_json::json;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
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

#[cfg(test)]
mod tests {
    #[test]
    fn colored_log_is_compiled_in() {
        // Panics without the feature `ansi`, as every command on a terminal would.
        let _subscriber = tracing_subscriber::fmt().with_ansi(true);
    }
}
