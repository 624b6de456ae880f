//! Arguments of `millrace serve`, with the flags of adapters as llama.cpp's server and vLLM spell them.

use super::{ModelArgs, SamplingArgs, Secret};
use crate::config::{
    ClusterRole, Config, ConfigError, Field, Layers, ReasoningParser, ToolParser, UpstreamApi, bind,
};
use clap::Args;
use serde::Deserialize;
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

/// Flags of output parsing.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AnswerArgs {
    /// Tool-call parser.
    #[arg(long, value_name = "FAMILY", visible_alias = "tool-call-parser")]
    pub(crate) tool_parser: Option<ToolParser>,
    /// Reasoning parser.
    #[arg(long, value_name = "FAMILY")]
    pub(crate) reasoning_parser: Option<ReasoningParser>,
    /// Field of a chat message that carries the reasoning.
    #[arg(long, value_name = "FIELD")]
    pub(crate) reasoning_field: Option<Field>,
}

impl AnswerArgs {
    /// These over other layers.
    pub(crate) fn over(&self, layers: Layers) -> Layers {
        layers
            .flag("answers.tool_parser", self.tool_parser.as_ref())
            .flag("answers.reasoning_parser", self.reasoning_parser.as_ref())
            .flag("answers.reasoning_field", self.reasoning_field.as_ref())
    }
}

/// The part of the process in a cluster, and the NATS servers.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClusterArgs {
    /// Part in a cluster: `all` (clients and model in one process), `gateway` (clients, without weights) or `engine` (computes
    /// for gateways); the latter two need `--nats`.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<ClusterRole>,
    /// NATS servers of the cluster, such as `nats://10.0.0.1:4222`.
    #[arg(
        long,
        value_name = "URL,...",
        value_delimiter = ',',
        visible_alias = "cluster-servers"
    )]
    pub(crate) nats: Option<Vec<String>>,
    /// Name of the cluster.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
}

impl ClusterArgs {
    /// These over other layers.
    pub(crate) fn over(&self, layers: Layers) -> Layers {
        layers
            .flag("cluster.role", self.role.as_ref())
            .flag("cluster.servers", self.nats.as_ref())
            .flag("cluster.name", self.cluster.as_ref())
    }
}

/// Names and web pages that are answered, and how connections are accepted.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReachArgs {
    /// Host names accepted in addition to this machine's own; `*` = any.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) hosts: Option<Vec<String>>,
    /// Origins of web pages allowed by CORS, in addition to this machine's: `https://chat.example.com`; `*` = any.
    #[arg(long, value_name = "ORIGIN,...", value_delimiter = ',')]
    pub(crate) origins: Option<Vec<String>>,
    /// The prefix of all paths, such as `/llm`.
    #[arg(long, value_name = "PATH")]
    pub(crate) api_prefix: Option<String>,
    /// Unix socket to listen on, too.
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Certificates in PEM, for TLS.
    #[arg(long, value_name = "FILE", visible_aliases = ["ssl-cert-file", "ssl-certfile"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of the certificate in PEM.
    #[arg(long, value_name = "FILE", visible_aliases = ["ssl-key-file", "ssl-keyfile"])]
    pub(crate) tls_key: Option<PathBuf>,
}

impl ReachArgs {
    /// These over other layers.
    pub(crate) fn over(&self, layers: Layers) -> Layers {
        layers
            .flag("server.hosts", self.hosts.as_ref())
            .flag("server.origins", self.origins.as_ref())
            .flag("server.api_prefix", self.api_prefix.as_ref())
            .flag("listener.unix_socket", self.unix_socket.as_ref())
            .flag("listener.tls_cert", self.tls_cert.as_ref())
            .flag("listener.tls_key", self.tls_key.as_ref())
    }
}

/// The servers, and how they are asked.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct UpstreamArgs {
    /// OpenAI-compatible server that computes the tokens instead of this process, such as `http://10.0.0.2:8000` (vLLM,
    /// llama.cpp's server, another Millrace); may be given several times.
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        visible_alias = "upstream-addresses"
    )]
    pub(crate) upstream: Option<Vec<String>>,
    /// How the servers are asked for tokens; default: by what they say of themselves.
    #[arg(long, value_name = "API")]
    pub(crate) upstream_api: Option<UpstreamApi>,
    /// Name of the model at the servers; default: the only one that they list.
    #[arg(long, value_name = "NAME")]
    pub(crate) upstream_model: Option<String>,
}

impl UpstreamArgs {
    /// These over other layers.
    pub(crate) fn over(&self, layers: Layers) -> Layers {
        layers
            .flag("upstream.addresses", self.upstream.as_ref())
            .flag("upstream.api", self.upstream_api.as_ref())
            .flag("upstream.model", self.upstream_model.as_ref())
    }
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AdapterArgs {
    /// Adapter (LoRA): a GGUF, or a folder of PEFT. Requests that say nothing about adapters use it.
    #[arg(long, value_name = "[NAME=]PATH", value_delimiter = ',')]
    pub(crate) lora: Vec<String>,
    /// Adapter with a scale.
    #[arg(long, value_name = "[NAME=]PATH:SCALE", value_delimiter = ',')]
    pub(crate) lora_scaled: Vec<String>,
    /// Adapters that a request uses only where it names them, also as its model.
    #[arg(long, value_name = "NAME=PATH", num_args = 1.., value_parser = module)]
    pub(crate) lora_modules: Vec<String>,
    /// Load adapters without using them in requests that do not name them.
    #[arg(long)]
    pub(crate) lora_init_without_apply: bool,
}

/// vLLM's description of an adapter in JSON.
#[derive(Deserialize)]
struct Module {
    name: String,
    path: String,
}

/// An adapter as `NAME=PATH`, or as JSON with `name` and `path`.
fn module(text: &str) -> Result<String, String> {
    if text.starts_with('{') {
        let module: Module = serde_json::from_str(text)
            .map_err(|_| "as JSON it must be {\"name\": NAME, \"path\": PATH}".to_owned())?;
        return Ok(format!("{}={}", module.name, module.path));
    }
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(text.to_owned()),
        _ => Err("must be NAME=PATH".to_owned()),
    }
}

impl AdapterArgs {
    /// `model.adapters`; `None`: no flag names an adapter. The numbers of adapters are in the order of the flags here.
    pub(crate) fn setting(&self) -> Option<Vec<String>> {
        let unused = |text: &String| format!("{text}:0");
        let applied = self.lora.iter().chain(&self.lora_scaled);
        let applied = applied.map(|text| {
            if self.lora_init_without_apply {
                unused(&without_scale(text))
            } else {
                text.clone()
            }
        });
        let all: Vec<String> = applied
            .chain(self.lora_modules.iter().map(unused))
            .collect();
        (!all.is_empty()).then_some(all)
    }
}

fn without_scale(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((path, scale)) if scale.parse::<f32>().is_ok() => path.to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        adapters: AdapterArgs,
    }

    fn setting(args: &[&str]) -> Option<Vec<String>> {
        let args = std::iter::once("millrace").chain(args.iter().copied());
        Command::try_parse_from(args).ok()?.adapters.setting()
    }

    #[test]
    fn flags_of_both_servers_are_one_setting() {
        let rows: [(&[&str], &[&str]); 5] = [
            (
                &["--lora", "a.gguf", "--lora", "n=b.gguf,c"],
                &["a.gguf", "n=b.gguf", "c"],
            ),
            (&["--lora-scaled", "a.gguf:0.5"], &["a.gguf:0.5"]),
            (&["--lora-modules", "n=x/y", "m=z"], &["n=x/y:0", "m=z:0"]),
            (
                &[
                    "--lora-modules",
                    r#"{"name":"n","path":"p","base_model_name":"b"}"#,
                ],
                &["n=p:0"],
            ),
            (
                &[
                    "--lora",
                    "a",
                    "--lora-scaled",
                    "b:2",
                    "--lora-init-without-apply",
                ],
                &["a:0", "b:0"],
            ),
        ];
        for (args, expected) in rows {
            let expected = expected.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(setting(args), Some(expected), "{args:?}");
        }
        assert_eq!(setting(&[]), None);
        assert_eq!(setting(&["--lora-modules", "x"]), None);
    }
}
