//! What the user typed after `millrace bench`.

use crate::config::KvType;
use bench::load::Target;
use clap::{Args, Subcommand};
use std::num::NonZeroU32;
use std::path::PathBuf;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// A model's prompts and decoding, beside the read bandwidth and the arithmetic peak of this
    /// machine, measured first.
    Model(BenchModelArgs),
    /// Streamed requests to any OpenAI-compatible server, in an open or a closed loop.
    Serve(BenchServeArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct BenchModelArgs {
    /// GGUF file.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "synth",
        conflicts_with = "synth"
    )]
    pub(crate) model: Option<PathBuf>,
    /// A synthetic model instead, such as `llama-1b:Q4_K_M` (see `millrace synth --list`).
    #[arg(long, value_name = "PRESET:FORMAT")]
    pub(crate) synth: Option<String>,
    /// Tokens of the prompt; 0: no prompts.
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    pub(crate) prompt: usize,
    /// Tokens that each sequence decodes; 0: no decoding.
    #[arg(long = "gen", value_name = "TOKENS", default_value_t = 64)]
    pub(crate) generate: usize,
    /// Sequences that decode together.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,8,32"
    )]
    pub(crate) batch: Vec<usize>,
    /// Positions that are filled before a test begins.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0")]
    pub(crate) context: Vec<usize>,
    /// Times everything is measured; medians are shown.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Threads that compute; default: one per processor.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// How keys and values are kept.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) kv_type: KvType,
    /// Rows are computed the same whatever shares a step; slower where there is AMX.
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Memory for keys and values; tests that need more are left out.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub(crate) kv_mib: u64,
    /// As one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct BenchServeArgs {
    /// The server, such as http://127.0.0.1:8420.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Target,
    /// Open loop: requests per second on average, arriving as a Poisson process.
    #[arg(long, value_name = "PER_S", conflicts_with = "clients")]
    pub(crate) rate: Option<f64>,
    /// Closed loop: clients with one request each at a time; default: 1.
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<usize>,
    /// Requests measured; default: four per client, or twenty seconds of arrivals.
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<usize>,
    /// Requests sent before, not measured; default: one per client, or 1.
    #[arg(long, value_name = "N")]
    pub(crate) warmup: Option<usize>,
    /// Use /v1/completions instead of /v1/chat/completions.
    #[arg(long)]
    pub(crate) completions: bool,
    /// Tokens of each prompt, about.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    pub(crate) prompt: usize,
    /// Tokens of each answer at most.
    #[arg(long = "gen", value_name = "TOKENS", default_value = "64")]
    pub(crate) generate: NonZeroU32,
    /// Ask for answers that do not end before that (Millrace, llama.cpp and vLLM know the field).
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// 0: always the likeliest token.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// The model's name; default: the first that the server lists.
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
    /// Same seed, same prompts and same arrivals.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// From when a request is due to its last byte.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,
    /// Goodput: bound on the first token of a good answer.
    #[arg(long, value_name = "MS")]
    pub(crate) slo_ttft_ms: Option<u64>,
    /// Goodput: bound on the mean wait between the tokens of a good answer.
    #[arg(long, value_name = "MS")]
    pub(crate) slo_itl_ms: Option<u64>,
    /// The server's process on this machine: also report its processor time and memory.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// As one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
