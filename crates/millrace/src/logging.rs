//! What the operator reads, on standard error.

use crate::config::Settings;
use crate::failure::Failure;
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

fn parse(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter).map_err(|why| format!("log.filter: {why}"))
}

/// The last word of a command that failed.
#[expect(clippy::print_stderr, reason = "a command's own words to its user")]
pub(crate) fn complain(why: &Failure) {
    eprintln!("millrace: {why}");
}
