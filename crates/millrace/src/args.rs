//! What the user typed. What it means is [`crate::config`]'s business.

mod answers;
mod bench;
mod eval;
mod models;
mod program;

pub(crate) use bench::{BenchCommand, BenchModelArgs, BenchServeArgs};
pub(crate) use eval::EvalArgs;
pub(crate) use models::{LibraryArgs, PullArgs};
pub(crate) use program::{Output, ProgramArgs};

use crate::config::{Config, ConfigError, KvType, Layers, Origin, Preset, Quantize, Speculation};
use answers::AnswerArgs;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// A language-model server whose speciality is the token stream.
#[derive(Debug, Parser)]
#[command(name = "millrace", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    /// Without one: `serve`, with settings from the environment.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model over HTTP, to many clients at once.
    Serve(ServeArgs),
    /// Answer one prompt on the terminal.
    Run(RunArgs),
    /// Talk with a model on the terminal.
    Chat(ChatArgs),
    /// Fetch a model, to be named from then on.
    Pull(PullArgs),
    /// List the models of this machine.
    Models(LibraryArgs),
    /// Show what is in a GGUF file, or a directory of safetensors.
    Inspect(InspectArgs),
    /// Write a synthetic GGUF model with random weights, for benchmarks and tests.
    Synth(SynthArgs),
    /// Show every setting, its value, and where the value came from.
    Config(ConfigArgs),
    /// Make, list and revoke the keys that clients of the server need.
    Keys(KeysArgs),
    /// Measure a model beside the machine's limits, or any OpenAI-compatible server under load.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Ask any OpenAI-compatible server questions whose answers are known, and count the right ones.
    Eval(EvalArgs),
}

impl Default for Command {
    fn default() -> Self {
        let config = std::env::var_os("MILLRACE_CONFIG").map(PathBuf::from);
        let model = ModelArgs {
            config,
            ..ModelArgs::default()
        };
        Self::Serve(ServeArgs {
            model,
            ..ServeArgs::default()
        })
    }
}

/// Flags that name the model and what it may use.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelArgs {
    /// The model, where it is not said before; without one, the built-in one.
    #[arg(long = "model", value_name = "PATH", conflicts_with = "path")]
    pub(crate) model_path: Option<PathBuf>,
    /// YAML file with settings.
    #[arg(long, env = "MILLRACE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Values for a kind of use, below everything that is set itself.
    #[arg(long, value_enum)]
    pub(crate) preset: Option<Preset>,
    /// Positions a sequence may have.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) context: Option<usize>,
    /// What the matrices of safetensors are quantised to as they are loaded.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) quantize: Option<Quantize>,
    /// Threads that compute.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Memory for keys and values.
    #[arg(long, value_name = "MIB")]
    pub(crate) kv_mib: Option<usize>,
    /// How keys and values are kept.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kv_type: Option<KvType>,
    /// Tokens are the same whatever shares a step; slower where there is AMX.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) deterministic: Option<bool>,
    /// Where guesses at the tokens to come are taken from.
    #[arg(long, value_name = "SOURCE")]
    pub(crate) speculation: Option<Speculation>,
    /// A smaller model with the same vocabulary that guesses; without `--speculation` means `draft`.
    #[arg(long, value_name = "PATH")]
    pub(crate) draft_model: Option<PathBuf>,
    /// What to log: error, warn, info, debug, or a tracing filter.
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// GGUF file (or the first part of a split one), or a directory that holds one or safetensors; without
    /// it, the built-in model.
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The name clients use for the model.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Where to listen.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bind: Option<SocketAddr>,
    /// File with the keys that clients need (see `millrace keys`).
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// Serve an address that other hosts can reach although there are no keys.
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// Sequences that may run at one time.
    #[arg(long, value_name = "N")]
    pub(crate) sequences: Option<usize>,
    /// Rows one step may compute.
    #[arg(long, value_name = "N")]
    pub(crate) step_tokens: Option<usize>,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
}

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a JSON Schema of the settings file.
    Schema,
    /// Print every setting and every preset as Markdown tables.
    Table,
}

/// How tokens are chosen, for the terminal.
#[derive(Clone, Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Tokens to generate at most; default: what the context leaves.
    #[arg(long, short = 'n', value_name = "TOKENS")]
    pub(crate) max_tokens: Option<usize>,
    /// 0 = always the likeliest token.
    #[arg(long, default_value_t = 0.7)]
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
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Stop before this text (may be given several times).
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
}

#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("path"), // what --model may not stand beside is looked at later
    override_usage = "millrace run [OPTIONS] [MODEL] <PROMPT>\n       \
                            millrace run --workflow FILE [--kwarg NAME=VALUE]... [OPTIONS] [MODEL]")]
pub(crate) struct RunArgs {
    /// The model (a GGUF file, or a directory that holds one or safetensors; without it, the built-in one), and
    /// then what to say to it; `-` reads standard input. With `--workflow` only the model.
    #[arg(value_name = "WORDS", num_args = 1..=2, required_unless_present = "workflow")]
    pub(crate) words: Vec<OsString>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// System message.
    #[arg(long)]
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
    /// GGUF file, or a directory that holds one or safetensors; without it, the built-in model.
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// System message.
    #[arg(long)]
    pub(crate) system: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct InspectArgs {
    /// GGUF file, or a directory of safetensors.
    pub(crate) path: PathBuf,
    /// Also list every tensor.
    #[arg(long)]
    pub(crate) tensors: bool,
    /// As one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SynthArgs {
    /// Where to write it; without it, the choices are shown.
    pub(crate) out: Option<PathBuf>,
    /// A shape by name.
    #[arg(long, default_value = "tiny-llama")]
    pub(crate) preset: String,
    /// Storage of the weights: F32, F16, BF16, Q4_0 ... Q6_K, or a mix such as `Q4_K_M`.
    #[arg(long, default_value = "Q8_0")]
    pub(crate) quant: String,
    /// Same seed, same file.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Take the tokenizer from this GGUF file.
    #[arg(long, value_name = "FILE")]
    pub(crate) vocab_from: Option<PathBuf>,
    /// Shape, where it differs from the preset's.
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Show the presets and quantisations.
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct KeysArgs {
    /// YAML file with settings; `keys.file` there names the key file.
    #[arg(long, env = "MILLRACE_CONFIG", value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The key file; default: the setting `keys.file` (or the variable `MILLRACE_KEYS_FILE`).
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) file: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print it; only its hash is kept.
    New(NewKeyArgs),
    /// Show every key's name, scopes and limits.
    List,
    /// Remove a key by its name.
    Revoke {
        /// The key's name.
        name: String,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NewKeyArgs {
    /// Whom the key is for: letters, digits, `.`, `_`, `-`.
    pub(crate) name: String,
    /// What it may be used for (may be given several times): inference, admin, metrics; default:
    /// inference.
    #[arg(long, value_parser = ["inference", "admin", "metrics"])]
    pub(crate) scope: Vec<String>,
    /// Answers that may be open at one time.
    #[arg(long, value_name = "N")]
    pub(crate) concurrent_streams: Option<NonZeroU32>,
    #[arg(long, value_name = "N")]
    pub(crate) requests_per_min: Option<NonZeroU32>,
    /// Tokens of prompts and answers together.
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_min: Option<NonZeroU32>,
    /// Share of the engine beside other keys, from 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) weight: u32,
}

/// Overrides of a preset's shape.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ShapeArgs {
    #[arg(long)]
    pub(crate) arch: Option<String>,
    #[arg(long)]
    pub(crate) dim: Option<u32>,
    #[arg(long)]
    pub(crate) layers: Option<u32>,
    #[arg(long)]
    pub(crate) heads: Option<u32>,
    #[arg(long)]
    pub(crate) kv_heads: Option<u32>,
    #[arg(long)]
    pub(crate) head_dim: Option<u32>,
    #[arg(long)]
    pub(crate) ffn: Option<u32>,
    #[arg(long)]
    pub(crate) vocab: Option<u32>,
    #[arg(long)]
    pub(crate) train_context: Option<u32>,
}

impl ModelArgs {
    /// The layers below and including these flags.
    fn layers(&self) -> Layers {
        let mut layers = Layers::defaults();
        if let Some(path) = &self.config {
            layers = layers.file(path);
        }
        let drafts = self.draft_model.as_ref().map(|_| Speculation::Draft);
        let speculation = self.speculation.or(drafts);
        layers
            .environment(std::env::vars())
            .flag("preset", self.preset.as_ref())
            .flag("model.path", self.model_path.as_ref())
            .flag("model.context", self.context.as_ref())
            .flag("model.quantize", self.quantize.as_ref())
            .flag("model.threads", self.threads.as_ref())
            .flag("model.kv_mib", self.kv_mib.as_ref())
            .flag("model.kv_type", self.kv_type.as_ref())
            .flag("model.deterministic", self.deterministic.as_ref())
            .flag("engine.speculation", speculation.as_ref())
            .flag("engine.draft_model", self.draft_model.as_ref())
            .flag("log.filter", self.log.as_ref())
    }

    /// Settings for a model that runs on the terminal, where the log keeps quiet unless asked.
    pub(crate) fn settings(&self, path: Option<&PathBuf>) -> Result<Config, ConfigError> {
        let mut config = self.layers().flag("model.path", path).finish()?;
        if config.origins["log.filter"] == Origin::Default {
            config.settings.log.filter = "warn".to_owned();
        }
        Ok(config)
    }
}

impl ServeArgs {
    /// Settings for the server.
    pub(crate) fn settings(&self) -> Result<Config, ConfigError> {
        self.answers
            .over(self.model.layers())
            .flag("model.path", self.path.as_ref())
            .flag("model.name", self.name.as_ref())
            .flag("server.bind", self.bind.as_ref())
            .flag("keys.file", self.keys.as_ref())
            .flag("server.no_auth", self.no_auth.then_some(&true))
            .flag("engine.sequences_max", self.sequences.as_ref())
            .flag("engine.step_tokens", self.step_tokens.as_ref())
            .finish()
    }
}

impl KeysArgs {
    /// Which file holds the keys.
    pub(crate) fn file(&self) -> Result<PathBuf, ConfigError> {
        let model = ModelArgs {
            config: self.config.clone(),
            ..ModelArgs::default()
        };
        let layers = model.layers().flag("keys.file", self.file.as_ref());
        let none = || ConfigError(vec!["keys.file: not set; say --file FILE".to_owned()]);
        layers.finish()?.settings.keys.file.ok_or_else(none)
    }
}
