//! Flags of the commands that talk to a running server, and of `millrace journal`.

use super::{LibraryArgs, Secret};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The running server, and the key to send.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// URL of the server; default: the configured address, or http://127.0.0.1:8420.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key to send.
    #[arg(
        long,
        env = "MILLRACE_API_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub(crate) api_key: Option<Secret>,
    #[command(flatten)]
    pub(crate) library: LibraryArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsArgs {
    #[command(subcommand)]
    pub(crate) command: StreamsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum StreamsCommand {
    /// List streams: those of the API key, or all with the scope `admin`.
    #[command(visible_alias = "ls")]
    List(StreamListArgs),
    /// Show the state of a stream.
    Show(StreamArgs),
    /// Print a stream's text during generation, until the end. Goes on after a restart of the server.
    Follow(FollowArgs),
    /// Cancel a running stream.
    Cancel(StreamArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StreamListArgs {
    /// Print a JSON array of the server's descriptions.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StreamArgs {
    /// Id of the stream: the header `x-stream-id` of a response.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Print the server's description as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct FollowArgs {
    /// Id of the stream: the header `x-stream-id` of a response.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Print what was generated at SPEED times the pace of generation (default 1) instead of at once. The server
    /// records when the first and the last token were generated and not the times between, so the pace is even; without
    /// these times, as after a restart of the server, everything is printed at once.
    #[arg(long, value_name = "SPEED", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = replay_speed)]
    pub(crate) replay: Option<f64>,
    /// Print each message as a line of JSON (docs/durable-streams.md).
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// A positive factor.
fn replay_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok();
    let speed = speed.filter(|speed| (0.001..=1e6).contains(speed));
    speed.ok_or_else(|| "must be a number from 0.001 to 1000000".to_owned())
}

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
