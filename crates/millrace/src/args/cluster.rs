//! Flags of a process in a cluster.

use crate::config::{ClusterRole, Layers};
use clap::Args;

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
