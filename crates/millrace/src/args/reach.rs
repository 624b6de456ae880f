//! Flags of who may reach the server, and under which names.

use crate::config::Layers;
use clap::Args;

/// Names and web pages that are answered.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReachArgs {
    /// Names this server answers to, beside this machine's own; `*` = any.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) hosts: Option<Vec<String>>,
    /// Web pages that may use this server, beside those of this machine: `https://chat.example.com`; `*` = any.
    #[arg(long, value_name = "ORIGIN,...", value_delimiter = ',')]
    pub(crate) origins: Option<Vec<String>>,
}

impl ReachArgs {
    /// These over other layers.
    pub(crate) fn over(&self, layers: Layers) -> Layers {
        layers
            .flag("server.hosts", self.hosts.as_ref())
            .flag("server.origins", self.origins.as_ref())
    }
}
