//! Arguments of workflows.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// A generation program instead of a prompt.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProgramArgs {
    /// Run a workflow (a JSON document) instead of a prompt.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "system", "raw", "stats", "schema", "tools", "think"])]
    pub(crate) workflow: Option<PathBuf>,
    /// Input of the workflow: plain text, or JSON (may be given several times).
    #[arg(long, value_name = "NAME=VALUE", requires = "workflow", value_parser = parse_pair)]
    pub(crate) kwarg: Vec<(String, String)>,
    /// Output of a workflow run.
    #[arg(long, value_enum, default_value_t, requires = "workflow")]
    pub(crate) output: Output,
}

/// Output of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Emitted tokens as they come; the return value if there were none.
    #[default]
    Text,
    /// One JSON object with the end, the return value and the tokens.
    Json,
    /// Nothing.
    None,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}
