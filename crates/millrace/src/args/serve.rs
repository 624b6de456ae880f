//! Arguments of `millrace serve`.

use super::answers::AnswerArgs;
use super::cluster::ClusterArgs;
use super::reach::ReachArgs;
use super::upstream::UpstreamArgs;
use super::{ModelArgs, SamplingArgs, Secret};
use crate::config::{Config, ConfigError, bind};
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// GGUF file (or the first part of a split one), directory of one GGUF or of safetensors, or a local model's name;
    /// default: the one model of this machine, or the built-in one where there is none.
    #[arg(value_name = "MODEL")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Model id for clients.
    #[arg(long, visible_aliases = ["alias", "served-model-name"])]
    pub(crate) name: Option<String>,
    /// Address and port to listen on, or one of them; default: 127.0.0.1:8420.
    #[arg(long, value_name = "ADDR:PORT", value_parser = bind::parse, conflicts_with_all = ["host", "port"])]
    pub(crate) bind: Option<SocketAddr>,
    /// Address to listen on, without a port; 0.0.0.0 = all interfaces (requires API keys, or `--no-auth`).
    #[arg(long, value_name = "ADDR", value_parser = bind::host)]
    pub(crate) host: Option<IpAddr>,
    /// Port to listen on; 0 = any free port.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// API key that clients must send (`Authorization: Bearer KEY`), or several separated by commas. Other users of
    /// this machine can see flags: the variable is safer; `--keys` has keys with limits.
    #[arg(
        long,
        env = "MILLRACE_API_KEY",
        hide_env_values = true,
        value_name = "KEY",
        value_delimiter = ','
    )]
    pub(crate) api_key: Vec<Secret>,
    /// API key file (see `millrace keys`).
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// Allow an address that other hosts can reach without API keys.
    #[arg(long)]
    pub(crate) no_auth: bool,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// Maximum number of sequences in the engine.
    #[arg(long, value_name = "N", visible_aliases = ["parallel", "max-num-seqs"])]
    pub(crate) sequences: Option<usize>,
    /// Maximum number of tokens computed in one step.
    #[arg(long, value_name = "N", visible_alias = "max-num-batched-tokens")]
    pub(crate) step_tokens: Option<usize>,
    /// Directory of the journal of durable streams; '' = no journal.
    #[arg(long, value_name = "DIR", visible_alias = "journal-directory")]
    pub(crate) journal: Option<String>, // clap rejects an empty path
    /// Maximum size of the prompt cache on disk; 0 = off. Prompts of users are then on the disk.
    #[arg(long, value_name = "GIB")]
    pub(crate) cache_disk_gib: Option<u64>,
    /// Directory of the prompt cache on disk.
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) upstream: UpstreamArgs,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

impl ServeArgs {
    /// Settings for the server.
    pub(crate) fn settings(&self) -> Result<Config, ConfigError> {
        let keys: Vec<_> = self
            .api_key
            .iter()
            .map(|key| key.reveal().to_owned())
            .collect();
        let layers = self.reach.over(self.answers.over(self.model.layers()));
        let layers = self.sampling.over(layers);
        self.upstream
            .over(self.cluster.over(layers))
            .api_keys(&keys)
            .flag("model.path", self.path.as_ref())
            .flag("model.name", self.name.as_ref())
            .flag("server.bind", self.bind.as_ref())
            .address(self.host, self.port)
            .flag("keys.file", self.keys.as_ref())
            .flag("server.no_auth", self.no_auth.then_some(&true))
            .flag("engine.sequences_max", self.sequences.as_ref())
            .flag("journal.directory", self.journal.as_ref())
            .flag("cache.disk_gib", self.cache_disk_gib.as_ref())
            .flag("cache.disk_directory", self.cache_directory.as_ref())
            .flag("engine.step_tokens", self.step_tokens.as_ref())
            .finish()
    }
}
