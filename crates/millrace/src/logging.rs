//! What the operator reads, on standard error.

use crate::config::Settings;
use crate::failure::Failure;
use tracing_subscriber::EnvFilter;

/// Starts logging as the settings say.
pub(crate) fn start(settings: &Settings) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&settings.log.filter)
        .map_err(|why| Failure::user(format!("log.filter: {why}")))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if settings.log.json {
        builder.json().init();
    } else {
        builder.init();
    }
    Ok(())
}

/// The last word of a command that failed.
#[expect(clippy::print_stderr, reason = "a command's own words to its user")]
pub(crate) fn complain(why: &Failure) {
    eprintln!("millrace: {why}");
}
