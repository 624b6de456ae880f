//! What the operator reads, on standard error.

use crate::config::Settings;
use crate::failure::Failure;
use std::io::{IsTerminal, Write};
use tracing_subscriber::EnvFilter;

/// What is logged; it may be changed at any time.
pub(crate) struct LogFilter {
    replace: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send>,
}

impl LogFilter {
    /// From now on this.
    pub(crate) fn set(&self, filter: &str) -> Result<(), String> {
        (self.replace)(parse(filter)?)
    }
}

/// Starts logging as the settings say.
pub(crate) fn start(settings: &Settings) -> Result<LogFilter, Failure> {
    let filter = parse(&settings.log.filter).map_err(Failure::User)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_coloured())
        .with_writer(std::io::stderr);
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

/// Whether lines have colours: on a terminal that can show them, unless <https://no-color.org> says no.
fn is_coloured() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !set("NO_COLOR") && !is_dumb
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter).map_err(|why| format!("log.filter: {why}"))
}

/// The last word of a command that failed.
pub(crate) fn complain(why: &Failure) {
    // Where standard error is closed, too, the exit code says it.
    let _ = writeln!(std::io::stderr(), "millrace: {why}");
}
