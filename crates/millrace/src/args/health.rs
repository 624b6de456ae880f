//! Flags of `millrace health`.

use super::ServerArgs;
use clap::Args;

#[derive(Clone, Debug, Args)]
pub(crate) struct HealthArgs {
    /// Also succeed while the model is loaded and during the shutdown: the process answers.
    #[arg(long)]
    pub(crate) live: bool,
    /// Print nothing on success.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
