//! The command line as typed, and its errors without the words of Rust's parsers; [`crate::config`] makes settings of
//! the flags.

mod bench;
mod models;
mod run;
mod serve;
mod streams;

pub(crate) use bench::{BenchCommand, BenchModelArgs, BenchServeArgs};
pub(crate) use models::{
    CpArgs, KeysArgs, KeysCommand, LibraryArgs, NewKeyArgs, PullArgs, RmArgs, Secret, StopArgs,
};
pub(crate) use run::{ChatArgs, GenerateArgs, Output, ProgramArgs, RunArgs, SamplingArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use streams::{
    FollowArgs, HealthArgs, InspectJournalArgs, JournalArgs, JournalCommand, ServerArgs,
    StreamArgs, StreamListArgs, StreamsArgs, StreamsCommand,
};

use crate::config::{
    Config, ConfigError, DeviceChoice, KvType, Layers, MmprojChoice, Origin, Preset, Quantize,
    Speculation,
};
use crate::failure::Failure;
use crate::logging;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serve::AdapterArgs;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Description of the program, for `--help`.
const ABOUT: &str = "\
Millrace runs language models on this machine's CPU and serves them to many clients at once, over the APIs of \
OpenAI, Anthropic and Ollama.

Examples:
  millrace run \"Tell me a story about a fox.\"   one answer, of the small built-in model
  millrace pull qwen3:0.6b                      fetch a model from Hugging Face
  millrace serve qwen3:0.6b --port 8080         serve it at http://127.0.0.1:8080/v1";

/// The help below the list of commands.
const DEFAULT: &str =
    "Without a command: `serve`, as in `millrace` or `millrace MODEL.gguf --port 8080`.";

/// The default command.
const SERVE: &str = "serve";
/// Flags that are the program's own and not `serve`'s.
const OWN_FLAGS: [&str; 4] = ["-h", "--help", "-V", "--version"];

/// Everything that can be typed.
#[derive(Debug, Parser)]
#[command(
    name = "millrace",
    version,
    about = ABOUT,
    after_help = DEFAULT,
    override_usage = "millrace [COMMAND] [OPTIONS]",
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the command line. Without a command, the command is `serve`.
    ///
    /// # Errors
    /// The exit code, after help or an error was printed: an error in one line of JSON where the environment wants a JSON log.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        let words = with_command(std::env::args_os().collect());
        Self::try_parse_from(words).map_err(|why| print_error(&why))
    }
}

/// The arguments with the default command inserted before a flag of `serve` and before a model's file.
fn with_command(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_served = |word: &OsString| {
        let text = word.to_string_lossy();
        text.starts_with('-') && !OWN_FLAGS.contains(&&*text) || text.ends_with(".gguf")
    };
    if words.get(1).is_none_or(is_served) {
        words.insert(1.min(words.len()), SERVE.into());
    }
    words
}

/// A path that may be empty, as in a variable without a value.
fn path_or_none() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model over HTTP.
    Serve(ServeArgs),
    /// Generate one answer on the terminal.
    Run(RunArgs),
    /// Chat with a model on the terminal.
    Chat(ChatArgs),
    /// Download a model from Hugging Face.
    Pull(PullArgs),
    /// List local models.
    #[command(visible_aliases = ["list", "ls"])]
    Models(LibraryArgs),
    /// List the loaded models of a running server.
    Ps(ServerArgs),
    /// Unload models of a running server.
    Stop(StopArgs),
    /// List, show, follow and cancel the streams of a running server.
    Streams(StreamsArgs),
    /// Show the contents of a model: a GGUF file, a directory of safetensors, or a local model's name.
    #[command(visible_alias = "show")]
    Inspect(InspectArgs),
    /// Give a local model a second name.
    Cp(CpArgs),
    /// Remove models that were downloaded by `pull`, or derived models.
    Rm(RmArgs),
    /// Write a synthetic GGUF model with random weights, for benchmarks and tests.
    Synth(SynthArgs),
    /// Show every setting, its value and its origin.
    Config(ConfigArgs),
    /// Create, list and revoke API keys.
    Keys(KeysArgs),
    /// Create an nkey for the login at NATS servers: the seed in a file, the public key on standard output.
    Nkey {
        /// New file for the seed.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Look at the journal of durable streams, or check it, without a server.
    Journal(JournalArgs),
    /// Benchmark a model beside the machine's limits, or load-test any OpenAI-compatible server.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Check that a running server accepts requests: exit status 0, else 1.
    Health(HealthArgs),
    /// Examine this machine: what prevents serving, and what would make it faster.
    Doctor(DoctorArgs),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page of this program, or write one for each command.
    Man {
        /// Existing folder for a page of each command; default: print the first one.
        #[arg(value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
    /// Print the version.
    Version,
}

/// Flags that name the model and resources of the model.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelArgs {
    /// The model: a GGUF file, a directory, or a local model's name.
    #[arg(
        short = 'm',
        long = "model",
        value_name = "MODEL",
        conflicts_with = "path"
    )]
    pub(crate) model_path: Option<PathBuf>,
    /// YAML file with settings; '' = none.
    #[arg(long, env = "MILLRACE_CONFIG", value_name = "FILE", value_parser = path_or_none())]
    pub(crate) config: Option<PathBuf>,
    /// Directory of models, in place of `models.directories` (may be given several times; downloads go to the first).
    #[arg(long, value_name = "DIR")]
    pub(crate) models_dir: Vec<PathBuf>,
    /// Defaults for a kind of use; explicit settings take precedence.
    #[arg(long, value_enum)]
    pub(crate) preset: Option<Preset>,
    /// Maximum context of a sequence, in tokens.
    #[arg(short = 'c', long, value_name = "TOKENS", visible_aliases = ["ctx-size", "max-model-len"])]
    pub(crate) context: Option<usize>,
    #[command(flatten)]
    pub(crate) adapters: AdapterArgs,
    /// File with the tower of a model that sees images, in place of the one next to the model.
    #[arg(long, value_name = "FILE")]
    pub(crate) mmproj: Option<PathBuf>,
    /// Load no tower: the model reads text only.
    #[arg(long, visible_alias = "no-mmproj", conflicts_with = "mmproj")]
    pub(crate) no_vision: bool,
    /// Model that describes images for one that reads text only; off = none.
    #[arg(long, value_name = "MODEL")]
    pub(crate) vision_proxy: Option<String>,
    /// Jinja file with a chat template, in place of the model's own.
    #[arg(long, value_name = "FILE", visible_alias = "chat-template-file")]
    pub(crate) chat_template: Option<PathBuf>,
    /// Quantization of safetensors weights at load.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) quantize: Option<Quantize>,
    /// Where the model is computed: auto, cpu, or a GPU as gpu, vulkan, metal or dx12, with `:N` for one of several.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,
    /// Number of compute threads.
    #[arg(short = 't', long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Size of the KV cache.
    #[arg(long, value_name = "MIB")]
    pub(crate) kv_mib: Option<usize>,
    /// Data type of the KV cache.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kv_type: Option<KvType>,
    /// Batch-invariant results; slower on processors with AMX.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) deterministic: Option<bool>,
    /// Speculative decoding: source of draft tokens.
    #[arg(long, value_name = "SOURCE")]
    pub(crate) speculation: Option<Speculation>,
    /// Draft model with the same vocabulary; implies `--speculation draft`.
    #[arg(long, value_name = "PATH")]
    pub(crate) draft_model: Option<PathBuf>,
    /// Log level (error, warn, info, debug) or a tracing filter.
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print a report on the GPU of `--device` instead: driver, limits, bandwidth, and each kernel compared with its definition.
    #[arg(long)]
    pub(crate) report: bool,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
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

#[derive(Clone, Debug, Args)]
pub(crate) struct InspectArgs {
    /// GGUF file, directory of safetensors, or a local model's name.
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
    /// Also list all tensors.
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) library: LibraryArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SynthArgs {
    /// Output file; default: show the presets and quantizations.
    pub(crate) out: Option<PathBuf>,
    /// Preset of the model's shape; default: `tiny-llama`, or with `--arch` the tiny model of that architecture.
    #[arg(long)]
    pub(crate) preset: Option<String>,
    /// Tensor format: F32, F16, BF16, Q4_0 ... Q6_K, or a mix such as `Q4_K_M`.
    #[arg(long, default_value = "Q8_0")]
    pub(crate) quant: String,
    /// Random seed; the same seed gives the same file.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Take the tokenizer from this GGUF file.
    #[arg(long, value_name = "FILE")]
    pub(crate) vocab_from: Option<PathBuf>,
    /// Shape, where it differs from the preset's.
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Show the presets and quantizations.
    #[arg(long)]
    pub(crate) list: bool,
}

/// Overrides of a preset's shape.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ShapeArgs {
    /// Architecture, as in GGUF.
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
    fn mmproj_choice(&self) -> Option<MmprojChoice> {
        let off = self.no_vision.then_some(MmprojChoice::Off);
        off.or_else(|| self.mmproj.clone().map(MmprojChoice::File))
    }

    /// The layers below and including these flags.
    fn layers(&self) -> Layers {
        let mut layers = Layers::defaults();
        if let Some(path) = self.config.as_ref().filter(|path| *path != Path::new("")) {
            layers = layers.file(path);
        }
        let drafts = self.draft_model.as_ref().map(|_| Speculation::Draft);
        let speculation = self.speculation.or(drafts);
        let directories = (!self.models_dir.is_empty()).then_some(&self.models_dir);
        layers
            .environment(crate::config::environment_variables())
            .flag("preset", self.preset.as_ref())
            .flag("model.path", self.model_path.as_ref())
            .flag("models.directories", directories)
            .flag("model.context", self.context.as_ref())
            .flag("model.adapters", self.adapters.setting().as_ref())
            .flag("model.mmproj", self.mmproj_choice().as_ref())
            .flag("vision.proxy.model", self.vision_proxy.as_ref())
            .flag("model.chat_template", self.chat_template.as_ref())
            .flag("model.quantize", self.quantize.as_ref())
            .flag("model.device", self.device.as_ref())
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
        let layers = self.layers().flag("model.path", path);
        let mut config = layers.finish_without_server()?;
        if config.origins["log.filter"] == Origin::Default {
            config.settings.log.filter = "warn".to_owned();
        }
        Ok(config)
    }
}

/// The setting `log.json` in the environment.
const JSON_LOG_VARIABLE: &str = "MILLRACE_LOG_JSON";
/// Reasons of Rust's number parsers, and words for people.
const NUMBER_WORDS: [(&str, &str); 6] = [
    (
        "number would be zero for non-zero type",
        "must be at least 1",
    ),
    (
        "invalid digit found in string",
        "must be a whole number from 0 on",
    ),
    (
        "cannot parse integer from empty string",
        "must be a whole number",
    ),
    (
        "number too large to fit in target type",
        "is too large a number",
    ),
    ("invalid float literal", "must be a number"),
    ("cannot parse float from empty string", "must be a number"),
];

/// Prints help or an error, an error in one line of JSON where the environment wants a JSON log. Returns the exit code.
fn print_error(why: &clap::Error) -> ExitCode {
    let is_json = std::env::var(JSON_LOG_VARIABLE).is_ok_and(|value| value == "true");
    let words = why.render();
    // Without a reader the exit code remains.
    let _ = if !why.use_stderr() {
        why.print()
    } else if is_json {
        logging::use_json(true);
        let words = plain_error(&words.to_string());
        let words = words.trim_start_matches("error: ").trim_end();
        logging::print_failure(&Failure::user(words));
        Ok(())
    } else if logging::is_colored() {
        write!(
            std::io::stderr(),
            "{}",
            plain_error(&words.ansi().to_string())
        )
    } else {
        write!(std::io::stderr(), "{}", plain_error(&words.to_string()))
    };
    u8::try_from(why.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The text of an error with a sentence in place of Rust's words: `must be 0 to 9` for `10 is not in 0..=9`.
fn plain_error(words: &str) -> String {
    let lines: Vec<String> = words.split('\n').map(plain_line).collect();
    lines.join("\n")
}

fn plain_line(line: &str) -> String {
    let known = NUMBER_WORDS
        .iter()
        .find(|(reason, _)| line.ends_with(reason));
    if let Some((reason, plain)) = known {
        return line.replace(reason, plain);
    }
    plain_range(line).unwrap_or_else(|| line.to_owned())
}

fn plain_range(line: &str) -> Option<String> {
    let (before, range) = line.rsplit_once(" is not in ")?;
    let (before, _) = before.rsplit_once(": ")?;
    let (least, most) = range.split_once("..")?;
    // A range without `=` ends with the largest number there is.
    Some(match most.strip_prefix('=') {
        Some(most) => format!("{before}: must be {least} to {most}"),
        None => format!("{before}: must be at least {least}"),
    })
}

#[cfg(test)]
mod tests {
    use super::{Cli, plain_error};
    use clap::Parser;

    #[test]
    fn errors_of_numbers_have_no_words_of_rust() {
        for (args, want) in [
            (
                ["serve", "--port", "99999"],
                "--port <PORT>': must be 0 to 65535",
            ),
            (
                ["serve", "--top-k", "-1"],
                "--top-k <N>': must be 0 to 4294967295",
            ),
            (
                ["serve", "--context", "x"],
                "--context <TOKENS>': must be a whole number from 0 on",
            ),
            (
                ["serve", "--temperature", "x"],
                "--temperature <NUMBER>': must be a number",
            ),
            (
                ["run", "--max-tokens", "0"],
                "--max-tokens <TOKENS>': must be at least 1",
            ),
        ] {
            let args = ["millrace"].into_iter().chain(args);
            let why = Cli::try_parse_from(args).expect_err(want);
            let words = plain_error(&why.render().to_string());
            assert!(words.contains(want), "{words}");
        }
    }
}
