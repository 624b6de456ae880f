//! What the user typed after `millrace eval`.

use bench::load::Target;
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub(crate) struct EvalArgs {
    /// Cases, one JSON object a line (docs/built-in-model.md says what is in one).
    pub(crate) file: PathBuf,
    /// The server, such as http://127.0.0.1:8420.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8420")]
    pub(crate) url: Target,
    /// The model's name; default: none is sent.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The key to send.
    #[arg(
        long,
        env = "MILLRACE_API_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub(crate) api_key: Option<String>,
    /// Requests in flight.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) clients: usize,
    /// For one answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,
    /// Wrong answers to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) show: usize,
    /// As one JSON object, with all wrong answers.
    #[arg(long)]
    pub(crate) json: bool,
}
