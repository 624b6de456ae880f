//! Arguments of `millrace bench`.

use crate::config::{DeviceChoice, KvType};
use bench::load::Target;
use clap::{Args, Subcommand};
use std::num::NonZeroU32;
use std::path::PathBuf;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Benchmark a model's prefill and decoding, beside the measured memory bandwidth and arithmetic peak of this
    /// machine.
    Model(BenchModelArgs),
    /// Load-test any OpenAI-compatible server with streamed requests, in an open or a closed loop.
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
    /// Synthetic model, such as `llama-1b:Q4_K_M` (see `millrace synth --list`).
    #[arg(long, value_name = "PRESET:FORMAT")]
    pub(crate) synth: Option<String>,
    /// Prompt length in tokens; 0 = no prefill test.
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    pub(crate) prompt: usize,
    /// Tokens decoded per sequence; 0 = no decode test.
    #[arg(long = "gen", value_name = "TOKENS", default_value_t = 64)]
    pub(crate) generate: usize,
    /// Batch sizes of the decode test.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,8,32"
    )]
    pub(crate) batch: Vec<usize>,
    /// Decode once more with a device that draws tokens and begins a step before those of the last one are here.
    #[arg(long)]
    pub(crate) ahead: bool,
    /// Context that is filled before a test, in tokens.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0")]
    pub(crate) context: Vec<usize>,
    /// Number of rounds; medians are shown.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Number of compute threads; default: one per processor.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Where the model is computed: cpu, gpu, vulkan, metal or dx12, the last four perhaps with a number.
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub(crate) device: DeviceChoice,
    /// Data type of the KV cache.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) kv_type: KvType,
    /// Batch-invariant results; slower on processors with AMX.
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Size of the KV cache; tests that need more are skipped.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub(crate) kv_mib: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct BenchServeArgs {
    /// URL of the server, such as http://127.0.0.1:8420.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Target,
    /// Open loop: mean request rate per second, Poisson arrivals.
    #[arg(long, value_name = "PER_S", conflicts_with = "clients")]
    pub(crate) rate: Option<f64>,
    /// Closed loop: number of clients, each with one request at a time; default: 1.
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<usize>,
    /// Number of measured requests; default: four per client, or twenty seconds of arrivals.
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<usize>,
    /// Number of warm-up requests; default: one per client, or 1.
    #[arg(long, value_name = "N")]
    pub(crate) warmup: Option<usize>,
    /// Use /v1/completions instead of /v1/chat/completions.
    #[arg(long)]
    pub(crate) completions: bool,
    /// Approximate prompt length in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    pub(crate) prompt: usize,
    /// Maximum answer length in tokens.
    #[arg(long = "gen", value_name = "TOKENS", default_value = "64")]
    pub(crate) generate: NonZeroU32,
    /// Ask for answers of exactly that length (field of Millrace, llama.cpp and vLLM).
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Sampling temperature; 0 = greedy.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// Model id; default: the first that the server lists.
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
    /// Random seed of prompts and arrivals.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Timeout from a request's due time to its last byte.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,
    /// Goodput: limit on time to first token.
    #[arg(long, value_name = "MS")]
    pub(crate) slo_ttft_ms: Option<u64>,
    /// Goodput: limit on the mean inter-token latency.
    #[arg(long, value_name = "MS")]
    pub(crate) slo_itl_ms: Option<u64>,
    /// PID of the server on this machine: also report its CPU time and memory.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
