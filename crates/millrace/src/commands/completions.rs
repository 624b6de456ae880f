//! `millrace completions`: a script that completes commands and flags in a shell.

use crate::args::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Prints the script.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    // clap_complete panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "millrace", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(())
}
