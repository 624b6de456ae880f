//! Flags of access: addresses, keys and host names.

use crate::config::Layers;
use clap::Args;
use std::path::PathBuf;

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
