//! The other instances of the cluster.

use crate::ClusterSlot;
use cluster::instances::{InstanceState, LiveInstance};
use cluster::messages::{Heartbeat, Role};
use cluster::names::InstanceId;
use cluster::secret::ClusterSecret;
use http_client::{ClientOptions, HttpClient};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Why a gateway is not asked that has not shown that it is one.
const NOT_SEALED: &str = "its heartbeats are not sealed with this gateway's secret (cluster.secret_file), or the clocks differ by over 30 s";

/// Time for a connection to another instance.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// Idle connections to one instance.
const IDLE_CONNECTIONS_MAX: usize = 8;

/// Another instance that is not gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) id: InstanceId,
    pub(crate) role: Role,
    /// Host and port of the HTTP interface, or why the instance is not asked.
    pub(crate) address: Result<String, &'static str>,
}

/// Which instances are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerReach {
    /// Those that own streams.
    Gateways,
    /// Engines, too.
    All,
}

/// Where a heartbeat's instance is asked. A gateway with other keys could take a caller for another one, or for anybody;
/// whoever may publish heartbeats could name an address without a seal.
fn address(
    heartbeat: &Heartbeat,
    is_sealed: bool,
    own: &Heartbeat,
) -> Result<String, &'static str> {
    if heartbeat.role != Role::Engine && heartbeat.keys_digest != own.keys_digest {
        return Err("its API keys differ from those here");
    }
    if let (Some(theirs), Some(ours)) = (heartbeat.cluster_id, own.cluster_id)
        && theirs != ours
    {
        return Err("it belongs to another cluster of the same name");
    }
    if heartbeat.role != Role::Engine && !is_sealed {
        return Err(NOT_SEALED);
    }
    let address = heartbeat.http.clone();
    address.ok_or("its heartbeats have no address (cluster.address)")
}

/// The other instances, from their heartbeats; none without a cluster.
#[derive(Clone)]
pub(crate) struct Peers {
    cluster: ClusterSlot,
    trust: Arc<OnceLock<GatewayTrust>>,
    client: HttpClient,
}

/// What makes other gateways believe this one, and this one them.
pub(crate) struct GatewayTrust {
    /// Id of this gateway.
    pub(crate) id: InstanceId,
    pub(crate) secret: ClusterSecret,
}

impl Peers {
    /// The instances that this process hears of.
    pub(crate) fn new(cluster: ClusterSlot) -> Self {
        Self {
            cluster,
            trust: Arc::default(),
            client: HttpClient::new(ClientOptions {
                connect_max: CONNECT_WAIT,
                idle_max: IDLE_CONNECTIONS_MAX,
                ..ClientOptions::default()
            }),
        }
    }

    /// This gateway has this id and secret. Only the first call counts.
    pub(crate) fn set_trust(&self, id: InstanceId, secret: ClusterSecret) {
        let _ = self.trust.set(GatewayTrust { id, secret });
    }

    /// Id of this instance; `None` without a cluster.
    pub(crate) fn own_id(&self) -> Option<InstanceId> {
        self.cluster.get().map(|node| node.membership().id())
    }

    /// Id and secret of this gateway; `None`: without the secret, no gateway is asked, and none is believed.
    pub(crate) fn trust(&self) -> Option<&GatewayTrust> {
        self.trust.get()
    }

    /// The client for requests to other instances.
    pub(super) fn client(&self) -> &HttpClient {
        &self.client
    }

    /// Id of this instance, as in answers; `None` without a cluster.
    pub(crate) fn own_name(&self) -> Option<String> {
        self.own_id().map(|id| id.to_string())
    }

    /// Part of this instance in the cluster.
    pub(crate) fn own_role(&self) -> Option<Role> {
        self.cluster.get().map(|node| node.role())
    }

    /// The instances that are not gone, by id. Those that shut down still answer.
    pub(crate) fn living(&self, reach: PeerReach) -> Vec<Peer> {
        let Some(node) = self.cluster.get() else {
            return Vec::new();
        };
        let own = node.membership().own();
        let instances = node.membership().instances().into_iter();
        let is_asked = |instance: &LiveInstance| {
            let is_gateway = instance.heartbeat.role != Role::Engine;
            instance.state != InstanceState::Gone && (is_gateway || reach == PeerReach::All)
        };
        let peer = |instance: LiveInstance| Peer {
            id: instance.heartbeat.id,
            role: instance.heartbeat.role,
            address: address(&instance.heartbeat, instance.is_sealed, &own),
        };
        instances.filter(is_asked).map(peer).collect()
    }

    /// Ready when an instance is gone: it has ended, or its heartbeats are missing for long enough. While this process does
    /// not hear NATS, no instance counts as gone.
    pub(crate) async fn wait_until_gone(self, id: InstanceId) {
        let Some(mut changes) = self.changes() else {
            return std::future::pending().await;
        };
        while !self.is_gone(id) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn is_gone(&self, id: InstanceId) -> bool {
        let known = self
            .cluster
            .get()
            .and_then(|node| node.membership().get(id));
        known.is_none_or(|instance| instance.state == InstanceState::Gone)
    }

    /// Changes with the state of any instance; `None` without a cluster.
    pub(crate) fn changes(&self) -> Option<tokio::sync::watch::Receiver<u64>> {
        self.cluster.get().map(|node| node.membership().changes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::names::ClusterId;

    #[test]
    fn gateway_with_other_keys_is_not_asked() {
        let heartbeat = |role, keys: &str, http: Option<&str>| Heartbeat {
            keys_digest: keys.to_owned(),
            http: http.map(str::to_owned),
            ..Heartbeat::new(InstanceId(1), role)
        };
        let rows = [
            (Role::Gateway, "k", Some("h:1"), true),
            (Role::Gateway, "other", Some("h:1"), false),
            (Role::All, "", Some("h:1"), false),
            // An engine has no streams, and may have no keys.
            (Role::Engine, "", Some("h:1"), true),
            (Role::Gateway, "k", None, false),
        ];
        let mut own = heartbeat(Role::Gateway, "k", None);
        for (role, keys, http, is_asked) in rows {
            let address = |is_sealed| address(&heartbeat(role, keys, http), is_sealed, &own);
            assert_eq!(address(true).is_ok(), is_asked, "{role:?} {keys} {http:?}");
            let is_asked = is_asked && role == Role::Engine;
            assert_eq!(address(false).is_ok(), is_asked, "{role:?}, not sealed");
        }
        let mut other = heartbeat(Role::Gateway, "k", Some("h:1"));
        (own.cluster_id, other.cluster_id) = (Some(ClusterId(1)), Some(ClusterId(2)));
        assert!(address(&other, true, &own).is_err(), "of another cluster");
    }
}
