//! What the user typed after `millrace run` and `millrace chat`.

use super::{ModelArgs, ProgramArgs};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// How tokens are chosen, for the terminal.
#[derive(Clone, Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Tokens to generate at most; default: what the context leaves.
    #[arg(long, short = 'n', value_name = "TOKENS", visible_aliases = ["n-predict", "predict"])]
    pub(crate) max_tokens: Option<usize>,
    /// 0 = always the likeliest token.
    #[arg(long, default_value_t = 0.7, visible_alias = "temp")]
    pub(crate) temperature: f32,
    /// Only the K likeliest; 0 = off.
    #[arg(long, default_value_t = 0)]
    pub(crate) top_k: u32,
    /// Only the likeliest that together have this probability; 1 = off.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// Only those with this share of the likeliest one's probability; 0 = off.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) min_p: f32,
    /// Same seed, same answer; default: a fresh one.
    #[arg(short = 's', long)]
    pub(crate) seed: Option<u64>,
    /// Stop before this text (may be given several times).
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
    /// The model (a GGUF file, a directory that holds one or safetensors, or the name of a model of this machine;
    /// without it, the built-in one), and then the prompt. `-` as the prompt, and a pipe where there is none, read
    /// standard input. A model and no prompt on a terminal: a conversation. With `--workflow` only the model.
    #[arg(value_name = "WORDS", num_args = 0..)]
    pub(crate) words: Vec<OsString>,
    /// The prompt, where it does not stand alone; `-` reads standard input.
    #[arg(short = 'p', long, value_name = "TEXT")]
    pub(crate) prompt: Option<OsString>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// System message.
    #[arg(long, visible_alias = "system-prompt")]
    pub(crate) system: Option<String>,
    /// Continue the prompt as it is, without the chat template.
    #[arg(long, conflicts_with = "system")]
    pub(crate) raw: bool,
    /// Print counts and rates when done, to standard error.
    #[arg(long)]
    pub(crate) stats: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ChatArgs {
    /// GGUF file, a directory that holds one or safetensors, or the name of a model of this machine; without it,
    /// the built-in model.
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// System message.
    #[arg(long, visible_alias = "system-prompt")]
    pub(crate) system: Option<String>,
}
