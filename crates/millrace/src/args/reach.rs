//! Flags of access: addresses, keys and host names.

use crate::config::Layers;
use clap::Args;

/// Names and web pages that are answered.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReachArgs {
    /// Host names accepted in addition to this machine's own; `*` = any.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) hosts: Option<Vec<String>>,
    /// Origins of web pages allowed by CORS, in addition to this machine's: `https://chat.example.com`; `*` = any.
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
