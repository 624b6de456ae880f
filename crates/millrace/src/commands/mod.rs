//! One file per subcommand. Texts about the command line itself are here: `millrace completions`, a script that
//! completes commands and flags in a shell, and `millrace man`, manual pages made of the same texts as `--help`.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod inspect;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod models;
pub(crate) mod ps;
pub(crate) mod pull;
pub(crate) mod run;
mod running_server;
pub(crate) mod serve;
pub(crate) mod streams;
pub(crate) mod synth;
pub(crate) mod workflow;

use crate::args::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;
use std::path::Path;

/// `millrace version`: as `--version`.
pub(crate) fn version() -> Result<(), Failure> {
    writeln!(std::io::stdout(), "millrace {}", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}

/// Prints the script.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    // clap_complete panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "millrace", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(())
}

/// Prints the page of the program, or writes a page for each command into `folder`.
pub(crate) fn man(folder: Option<&Path>) -> Result<(), Failure> {
    let command = Cli::command();
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        std::io::stdout().lock().write_all(&page)?;
        return Ok(());
    };
    clap_mangen::generate_to(command, folder)
        .map_err(|why| Failure::user(format!("{}: {why}", folder.display())))
}
