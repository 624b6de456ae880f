//! Arguments of `millrace run` and `millrace chat`.

use super::{ModelArgs, ProgramArgs, SamplingArgs};
use clap::Args;
use generate::request::STOP_BYTES_MAX;
use std::ffi::OsString;
use std::path::PathBuf;

/// How answers are generated on the terminal.
#[derive(Clone, Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Maximum number of tokens to generate; default: the rest of the context.
    #[arg(
        long,
        short = 'n',
        value_name = "TOKENS",
        visible_aliases = ["n-predict", "predict"],
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..)
    )]
    pub(crate) max_tokens: Option<usize>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Random seed; default: a new one for each run.
    #[arg(short = 's', long)]
    pub(crate) seed: Option<u64>,
    /// Stop string, not included in the output (may be given several times).
    #[arg(long, value_name = "TEXT", value_parser = stop_string)]
    pub(crate) stop: Vec<String>,
    /// Structured output: a file with a JSON schema that the answer is constrained to.
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// Tools: a JSON file with the array `tools` of OpenAI's API. Tool calls are printed, a line of JSON each.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Whether the model calls tools: none, auto, required, or the name of the tool to call.
    #[arg(
        long,
        value_name = "CHOICE",
        default_value = "auto",
        requires = "tools"
    )]
    pub(crate) tool_choice: String,
    /// Turn reasoning on or off; default: the chat template's. Reasoning is printed to standard error.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) think: Option<bool>,
}

/// A stop string within the bound.
fn stop_string(text: &str) -> Result<String, String> {
    match text.len() {
        1..=STOP_BYTES_MAX => Ok(text.to_owned()),
        bytes => Err(format!(
            "has {bytes} bytes; must have 1 to {STOP_BYTES_MAX}"
        )),
    }
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
    pub(crate) generate: GenerateArgs,
    /// System prompt.
    #[arg(long, visible_alias = "system-prompt")]
    pub(crate) system: Option<String>,
    /// Use the prompt as it is, without the chat template.
    #[arg(long, conflicts_with_all = ["system", "tools", "think"])]
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
    pub(crate) generate: GenerateArgs,
    /// System prompt.
    #[arg(long, visible_alias = "system-prompt")]
    pub(crate) system: Option<String>,
}
