//! Flags of servers of others that compute the tokens.

use crate::config::{Layers, UpstreamApi};
use clap::Args;

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
