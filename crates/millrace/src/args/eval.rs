//! Arguments of `millrace eval`.

use bench::load::Target;
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub(crate) struct EvalArgs {
    /// Cases, one JSON object per line (format: docs/built-in-model.md).
    pub(crate) file: PathBuf,
    /// URL of the server, such as http://127.0.0.1:8420.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8420")]
    pub(crate) url: Target,
    /// Model id; default: not sent.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// API key to send.
    #[arg(
        long,
        env = "MILLRACE_API_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub(crate) api_key: Option<String>,
    /// Number of concurrent requests.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) clients: usize,
    /// Timeout of one answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,
    /// Number of wrong answers to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) show: usize,
    /// Print one JSON object with all wrong answers.
    #[arg(long)]
    pub(crate) json: bool,
}
