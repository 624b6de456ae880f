//! Flags of the commands about which models and keys there are.

use super::{ModelArgs, ServerArgs, path_or_none};
use crate::config::{Config, ConfigError};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub(crate) struct PullArgs {
    /// `hf.co/OWNER/REPOSITORY[@REVISION][:QUANT]`, `OWNER/REPOSITORY:FILE.gguf`, or a short name such as `qwen3:0.6b`.
    #[arg(required_unless_present = "list", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// Show the short names with sizes, and which of them fit this machine.
    #[arg(long, conflicts_with = "name")]
    pub(crate) list: bool,
    /// Leave out the tower of a model that sees images (`mmproj`).
    #[arg(long)]
    pub(crate) no_vision: bool,
    /// Send no request to the hub if a model of this name is on this machine.
    #[arg(long)]
    pub(crate) if_absent: bool,
    #[command(flatten)]
    pub(crate) library: LibraryArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RmArgs {
    /// Model names, as in `millrace list`.
    #[arg(value_name = "MODEL", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) library: LibraryArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CpArgs {
    /// Name of a local model, as in `millrace list`.
    #[arg(value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) from: String,
    /// The second name.
    #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) library: LibraryArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StopArgs {
    /// Model names, as in `millrace ps`.
    #[arg(value_name = "MODEL", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Flags that say where models are.
#[derive(Clone, Debug, Args)]
pub(crate) struct LibraryArgs {
    /// YAML file with settings; its `models.directories` names the model directories.
    #[arg(long, env = "MILLRACE_CONFIG", value_name = "FILE", value_parser = path_or_none())]
    config: Option<PathBuf>,
    /// Directory of models, in place of `models.directories` (may be given several times; downloads go to the first).
    #[arg(long, value_name = "DIR")]
    models_dir: Vec<PathBuf>,
    /// Log level (error, warn, info, debug) or a tracing filter.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

impl LibraryArgs {
    /// The settings they mean.
    ///
    /// # Errors
    /// Everything that is wrong with the file or the environment.
    pub(crate) fn settings(&self) -> Result<Config, ConfigError> {
        let model = ModelArgs {
            config: self.config.clone(),
            models_dir: self.models_dir.clone(),
            log: self.log.clone(),
            ..ModelArgs::default()
        };
        model.settings(None)
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct KeysArgs {
    /// YAML file with settings; its `keys.file` names the key file.
    #[arg(long, env = "MILLRACE_CONFIG", value_name = "FILE", value_parser = path_or_none(), global = true)]
    pub(crate) config: Option<PathBuf>,
    /// API key file; default: the setting `keys.file` (or the variable `MILLRACE_KEYS_FILE`).
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) file: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key and print it; only its hash is stored.
    New(NewKeyArgs),
    /// List all keys with scopes and limits.
    List,
    /// Create the secret that signs a key's events for webhooks, and print it. The secret of before signs, too, so that
    /// receivers can change.
    WebhookSecret {
        /// The key's name.
        name: String,
        /// Remove the secret of before at once.
        #[arg(long)]
        replace: bool,
    },
    /// Revoke a key by its name.
    Revoke {
        /// The key's name.
        name: String,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NewKeyArgs {
    /// Name of the key: letters, digits, `.`, `_`, `-`.
    pub(crate) name: String,
    /// Scope of the key (may be given several times): inference, admin, metrics; default: inference.
    #[arg(long, value_parser = ["inference", "admin", "metrics"])]
    pub(crate) scope: Vec<String>,
    /// Maximum number of concurrent streams.
    #[arg(long, value_name = "N")]
    pub(crate) concurrent_streams: Option<NonZeroU32>,
    #[arg(long, value_name = "N")]
    pub(crate) requests_per_min: Option<NonZeroU32>,
    /// Prompt and generated tokens per minute.
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_min: Option<NonZeroU32>,
    /// Weight of the key's share among all keys, from 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) weight: u32,
}

impl KeysArgs {
    /// Location of the API key file.
    pub(crate) fn file(&self) -> Result<PathBuf, ConfigError> {
        let model = ModelArgs {
            config: self.config.clone(),
            ..ModelArgs::default()
        };
        let layers = model.layers().flag("keys.file", self.file.as_ref());
        let none = || ConfigError(vec!["keys.file: not set; give --file FILE".to_owned()]);
        let config = layers.finish_without_server()?;
        config.settings.keys.file.ok_or_else(none)
    }
}

/// A text that no log shows.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// The first of several texts, separated by commas: the variable of a server's keys is also that of a client's key.
    pub(crate) fn first(&self) -> Self {
        let (first, _) = self.0.split_once(',').unwrap_or((&self.0, ""));
        Self(first.trim().to_owned())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
