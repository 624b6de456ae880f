//! `millrace man`: manual pages, made of the same texts as `--help`.

use crate::args::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use std::io::Write;
use std::path::Path;

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
