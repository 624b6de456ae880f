//! Arguments of `millrace journal`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub(crate) struct JournalArgs {
    #[command(subcommand)]
    pub(crate) command: JournalCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Show the streams of a journal. Only reads; a server may use the journal at the same time.
    Inspect(InspectJournalArgs),
    /// Check every record of a journal: exit code 0, or 1 with a line for each damage. Only reads.
    Verify {
        /// Directory of the journal.
        directory: PathBuf,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct InspectJournalArgs {
    /// Directory of the journal.
    pub(crate) directory: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also print the prompts, which may be confidential.
    #[arg(long)]
    pub(crate) text: bool,
}
