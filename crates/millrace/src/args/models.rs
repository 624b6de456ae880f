//! Flags of the commands about which models there are.

use super::{ModelArgs, ServerArgs, path_or_none};
use crate::config::{Config, ConfigError};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub(crate) struct PullArgs {
    /// `hf.co/OWNER/REPOSITORY[@REVISION][:QUANT]`, `OWNER/REPOSITORY:FILE.gguf`, or a short name such as `qwen3:0.6b`.
    #[arg(required_unless_present = "list", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// Show the short names with sizes, and which of them fit this machine.
    #[arg(long, conflicts_with = "name")]
    pub(crate) list: bool,
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
