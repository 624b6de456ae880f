//! What the user typed after `millrace serve`.

use super::answers::AnswerArgs;
use super::reach::ReachArgs;
use super::{ModelArgs, Secret};
use crate::config::{Config, ConfigError, bind};
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// GGUF file (or the first part of a split one), a directory that holds one or safetensors, or the name of a
    /// model of this machine; without it, the built-in model.
    #[arg(value_name = "MODEL")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The name clients use for the model.
    #[arg(long, visible_aliases = ["alias", "served-model-name"])]
    pub(crate) name: Option<String>,
    /// Where to listen: an address and a port, or one of them; default: 127.0.0.1:8420.
    #[arg(long, value_name = "ADDR:PORT", value_parser = bind::parse, conflicts_with_all = ["host", "port"])]
    pub(crate) bind: Option<SocketAddr>,
    /// The address to listen at, without a port; 0.0.0.0 = all of this machine's (needs keys, or `--no-auth`).
    #[arg(long, value_name = "ADDR", value_parser = bind::host)]
    pub(crate) host: Option<IpAddr>,
    /// The port to listen at; 0 = any that is free.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// A key that clients must send (`Authorization: Bearer KEY`); several with commas between. Other users of this
    /// machine see flags: the variable is safer, and `--keys` for keys with limits.
    #[arg(
        long,
        env = "MILLRACE_API_KEY",
        hide_env_values = true,
        value_name = "KEY",
        value_delimiter = ','
    )]
    pub(crate) api_key: Vec<Secret>,
    /// File with the keys that clients need (see `millrace keys`).
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// Serve an address that other hosts can reach although there are no keys.
    #[arg(long)]
    pub(crate) no_auth: bool,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// Sequences that may run at one time.
    #[arg(long, value_name = "N", visible_aliases = ["parallel", "max-num-seqs"])]
    pub(crate) sequences: Option<usize>,
    /// Rows one step may compute.
    #[arg(long, value_name = "N", visible_alias = "max-num-batched-tokens")]
    pub(crate) step_tokens: Option<usize>,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
}

impl ServeArgs {
    /// Settings for the server.
    pub(crate) fn settings(&self) -> Result<Config, ConfigError> {
        let keys: Vec<_> = self
            .api_key
            .iter()
            .map(|key| key.reveal().to_owned())
            .collect();
        self.reach
            .over(self.answers.over(self.model.layers()))
            .api_keys(&keys)
            .flag("model.path", self.path.as_ref())
            .flag("model.name", self.name.as_ref())
            .flag("server.bind", self.bind.as_ref())
            .address(self.host, self.port)
            .flag("keys.file", self.keys.as_ref())
            .flag("server.no_auth", self.no_auth.then_some(&true))
            .flag("engine.sequences_max", self.sequences.as_ref())
            .flag("engine.step_tokens", self.step_tokens.as_ref())
            .finish()
    }
}
