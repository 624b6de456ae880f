//! One file per subcommand.

pub(crate) mod bench;
pub(crate) mod chat;
mod columns;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cp;
pub(crate) mod doctor;
pub(crate) mod health;
pub(crate) mod inspect;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod man;
pub(crate) mod models;
pub(crate) mod nkey;
mod prompt_arguments;
pub(crate) mod ps;
pub(crate) mod pull;
pub(crate) mod rm;
pub(crate) mod run;
mod running_server;
pub(crate) mod serve;
pub(crate) mod stop;
pub(crate) mod streams;
pub(crate) mod synth;
pub(crate) mod workflow;

use crate::failure::Failure;
use std::io::Write;

/// `millrace version`: as `--version`.
pub(crate) fn version() -> Result<(), Failure> {
    writeln!(std::io::stdout(), "millrace {}", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
