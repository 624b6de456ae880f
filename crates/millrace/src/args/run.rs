//! Arguments of `millrace run` and `millrace chat`.

use super::ModelArgs;
use crate::config::Layers;
use clap::{Args, ValueEnum};
use generate::generation_options::GenerationOptions;
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
    #[arg(short = 's', long, allow_negative_numbers = true)]
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
    /// Image that the prompt is about: JPEG, PNG, WebP, GIF or BMP (may be given several times; `-` reads standard input).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "workflow"])]
    pub(crate) image: Vec<PathBuf>,
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

/// Sampling parameters; default: those that the model's files recommend, or else llama.cpp's.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SamplingArgs {
    /// Sampling temperature; 0 = greedy. Default: as the model recommends, or else 0.8.
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "NUMBER",
        visible_alias = "temp"
    )]
    pub(crate) temperature: Option<f64>,
    /// Top-k sampling; 0 = off. Default: as the model recommends, or else 40.
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(crate) top_k: Option<u32>,
    /// Top-p (nucleus) sampling; 1 = off. Default: as the model recommends, or else 0.95.
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER")]
    pub(crate) top_p: Option<f64>,
    /// Min-p sampling; 0 = off. Default: as the model recommends, or else 0.05.
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER")]
    pub(crate) min_p: Option<f64>,
    /// Repetition penalty; 1 = off. Default: as the model recommends, or else off.
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "NUMBER",
        visible_alias = "repeat-penalty"
    )]
    pub(crate) repetition_penalty: Option<f64>,
}

impl SamplingArgs {
    /// These over other layers, as the defaults of a server's requests.
    pub(crate) fn over(&self, layers: Layers) -> Layers {
        layers
            .flag("sampling.temperature", self.temperature.as_ref())
            .flag("sampling.top_k", self.top_k.as_ref())
            .flag("sampling.top_p", self.top_p.as_ref())
            .flag("sampling.min_p", self.min_p.as_ref())
            .flag(
                "sampling.repetition_penalty",
                self.repetition_penalty.as_ref(),
            )
    }

    /// These as the options of an answer.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the engine computes in f32"
    )]
    pub(crate) fn options(&self) -> GenerationOptions {
        let number = |value: Option<f64>| value.map(|value| value as f32);
        GenerationOptions {
            temperature: number(self.temperature),
            top_k: self.top_k,
            top_p: number(self.top_p),
            min_p: number(self.min_p),
            repetition_penalty: number(self.repetition_penalty),
            ..GenerationOptions::default()
        }
    }
}

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
