//! Arguments of `millrace run` and `millrace chat`.

use super::{ModelArgs, ProgramArgs};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// How tokens are chosen, for the terminal.
#[derive(Clone, Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Maximum number of tokens to generate; default: the rest of the context.
    #[arg(long, short = 'n', value_name = "TOKENS", visible_aliases = ["n-predict", "predict"])]
    pub(crate) max_tokens: Option<usize>,
    /// Sampling temperature; 0 = greedy.
    #[arg(long, default_value_t = 0.7, visible_alias = "temp")]
    pub(crate) temperature: f32,
    /// Top-k sampling; 0 = off.
    #[arg(long, default_value_t = 0)]
    pub(crate) top_k: u32,
    /// Top-p (nucleus) sampling; 1 = off.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// Min-p sampling; 0 = off.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) min_p: f32,
    /// Random seed; default: a new one for each run.
    #[arg(short = 's', long)]
    pub(crate) seed: Option<u64>,
    /// Stop string, not included in the output (may be given several times).
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
}

#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("path"), // what --model may not stand beside is looked at later
    override_usage = "millrace run [OPTIONS] [MODEL] <PROMPT>...\n       \
                            millrace run [OPTIONS] [MODEL] < FILE\n       \
                            millrace run --workflow FILE [--kwarg NAME=VALUE]... [OPTIONS] [MODEL]")]
pub(crate) struct RunArgs {
    /// The model (GGUF file, directory of one GGUF or of safetensors, or a local model's name; default: the built-in
    /// model), then the prompt. `-` as the prompt, or a pipe without a prompt, reads standard input. A model without
    /// a prompt on a terminal starts a conversation. With `--workflow` only the model.
    #[arg(value_name = "WORDS", num_args = 0..)]
    pub(crate) words: Vec<OsString>,
    /// The prompt; `-` reads standard input.
    #[arg(short = 'p', long, value_name = "TEXT")]
    pub(crate) prompt: Option<OsString>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// System prompt.
    #[arg(long, visible_alias = "system-prompt")]
    pub(crate) system: Option<String>,
    /// Use the prompt as it is, without the chat template.
    #[arg(long, conflicts_with = "system")]
    pub(crate) raw: bool,
    /// Print token counts and rates to standard error at the end.
    #[arg(long)]
    pub(crate) stats: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ChatArgs {
    /// GGUF file, directory of one GGUF or of safetensors, or a local model's name; default: the built-in model.
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// System prompt.
    #[arg(long, visible_alias = "system-prompt")]
    pub(crate) system: Option<String>,
}
