//! This process in the cluster of the settings.

use crate::clock::now_unix_s;
use crate::config::Settings;
use crate::failure::Failure;
use crate::journal_opening::{ReplicationMark, cluster_file, exchange_instance};
use crate::loading::LoadedEngine;
use cluster::executor::{DecodeImages, ExecutorModel};
use cluster::instances::{InstanceState, Membership};
use cluster::messages::{ContentIdentity, Heartbeat, KEYS_SAMPLE_MAX, Role};
use cluster::names::InstanceId;
use cluster::node::{ClusterNode, EngineSearch, NodeConfig, Relaying};
use cluster::records::{
    IdentityCheck, JetStreamRecords, JournalTap, RecordsDriver, Replicator, SharedReplicator,
};
use cluster::relay::RelayedModel;
use journal::RecordTap;
use server::{
    EngineAbsence, EngineArithmetic, EngineSight, Keys, ModelIdentity, OwnerState, RecordsSetup,
    Server, files_of_description, key_of_description,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A process that takes part in a cluster, for threads outside the server's runtime.
#[derive(Clone)]
pub(crate) struct JoinedCluster {
    pub(crate) node: Arc<ClusterNode>,
    /// The records of this gateway's streams; none at an engine, and after [`JoinedCluster::finish`].
    records: Arc<Mutex<Option<RecordsDriver>>>,
    /// Decodes images of other gateways' requests.
    decode: Arc<OnceLock<DecodeImages>>,
    runtime: Handle,
}

/// Time for the last records to be stored at an orderly stop.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// Joins the cluster of the settings, if there is one. `local` is the address that the server listens on. Must be called
/// inside the server's runtime.
///
/// # Errors
/// A file of secrets or certificates cannot be used.
pub(crate) async fn join(
    settings: &Settings,
    local: SocketAddr,
    keys: Arc<Keys>,
) -> Result<Option<JoinedCluster>, Failure> {
    let cluster = &settings.cluster;
    if !cluster.is_joined() {
        return Ok(None);
    }
    let role = Role::from(cluster.role);
    let membership = cluster.membership().map_err(Failure::user)?;
    let (id, limited) = (membership.id, Arc::clone(&keys));
    let bound = (!local.ip().is_unspecified()).then(|| local.to_string());
    let http = cluster.address.clone().or(bound);
    tracing::info!(instance = %id, cluster = cluster.name, role = role.name(), "joining the cluster");
    let describe = move || Heartbeat {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        http: http.clone(),
        record_version: journal::OPEN_VERSION,
        keys_digest: keys.digest(),
        keys_sample: keys.least_owners(KEYS_SAMPLE_MAX),
        at_unix_ms: u64::try_from(now_unix_s()).unwrap_or(0) * 1000,
        ..Heartbeat::new(id, role)
    };
    let config = NodeConfig {
        nats: cluster.nats(),
        membership,
        role,
        placement: cluster.placement.into(),
        engine_wait: Duration::from_millis(cluster.engine_wait_ms),
        describe: Box::new(describe),
    };
    let node = ClusterNode::start(config).await.map_err(Failure::user)?;
    if role != Role::Engine {
        tokio::spawn(divide_limits(Arc::downgrade(node.membership()), limited));
    }
    Ok(Some(JoinedCluster {
        node,
        records: Arc::default(),
        decode: Arc::default(),
        runtime: Handle::current(),
    }))
}

/// Gives the keys the number of gateways whenever an instance changes.
async fn divide_limits(membership: Weak<Membership>, keys: Arc<Keys>) {
    while let Some(known) = membership.upgrade() {
        let mut changes = known.changes();
        keys.set_gateways(known.count_gateways());
        drop(known);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The content of a model, as other instances compare it.
pub(crate) fn content_identity(identity: &ModelIdentity) -> ContentIdentity {
    ContentIdentity {
        weights: identity.weights.clone(),
        tokenizer: identity.tokenizer.clone(),
        template: identity.template.clone(),
        arithmetic: identity.arithmetic.clone(),
    }
}

impl JoinedCluster {
    /// Whether the models of this process have no weights.
    pub(crate) fn is_gateway(&self) -> bool {
        self.node.role() == Role::Gateway
    }

    /// Stores the records of this gateway's streams for the other gateways, and finds the others' streams. Returns the tap
    /// of the journal; without a journal the gateway finds streams and has none that others could continue.
    pub(crate) async fn start_records(
        &self,
        settings: &Settings,
        server: &Server,
        has_journal: bool,
    ) -> Result<Box<dyn RecordTap>, Failure> {
        let (membership, config) = (
            Arc::clone(self.node.membership()),
            settings.cluster.records(),
        );
        let id = membership.id();
        let predecessor = has_journal
            .then(|| exchange_instance(settings, id))
            .flatten();
        if !has_journal {
            tracing::warn!(
                "streams are not replicated: this gateway has no journal (journal.directory)"
            );
        }
        if membership.own().http.is_none() {
            tracing::warn!(
                "cluster.address is not set, and server.bind names no address: other gateways cannot pass on requests \
                 for the streams of this one"
            );
        }
        if membership.config().secret.is_none() {
            tracing::warn!(
                "cluster.secret_file is not set: this gateway asks no other gateway, and is asked by none"
            );
        }
        let connection = Arc::clone(self.node.connection());
        let (client, subjects) = (connection.client().clone(), self.node.subjects().clone());
        let replicator = Replicator::new(id, config.clone(), key_of_description)
            .with_files(files_of_description);
        let replicator = SharedReplicator::new(replicator);
        let known = Arc::clone(&membership);
        let mark = ReplicationMark::of(settings);
        let identity = Arc::clone(self.node.identity());
        if has_journal && let Some(file) = cluster_file(settings) {
            identity.remember_in(file);
        }
        let store = JetStreamRecords::new(client, subjects, config);
        let setup = RecordsSetup {
            connection,
            store: store.of_cluster(Arc::clone(&identity)),
            replicator: Arc::clone(&replicator),
            identity: Some(IdentityCheck {
                identity,
                membership: Arc::clone(&membership),
            }),
            state_of: Box::new(move |owner| owner_state(&membership, predecessor, owner)),
            others: Box::new(move || other_gateways(&known)),
            stream_bytes_max: settings.journal.config().recovery_bytes_max,
            may_be_replicated: has_journal && mark.is_set(),
            on_store: Box::new(move || mark.set()),
        };
        let driver = server.start_records(setup).await.map_err(Failure::user)?;
        let records = self.records.lock();
        *records.unwrap_or_else(PoisonError::into_inner) = Some(driver);
        Ok(Box::new(JournalTap::new(replicator)))
    }

    /// Whether clients are served.
    pub(crate) fn has_gateway(&self) -> bool {
        self.node.role() != Role::Engine
    }

    /// Leaves the cluster. To be called when no stream is open any more.
    pub(crate) async fn finish(&self) {
        let records = self.records.lock();
        let records = records.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(records) = records
            && !records.flush(FLUSH_MAX).await
        {
            tracing::warn!("the last records of streams are not in JetStream");
        }
        self.node.finish().await;
    }

    /// Waits for an engine; returns its context. Not to be called inside the runtime.
    pub(crate) fn wait_for_engine(&self, search: EngineSearch) -> Result<usize, Failure> {
        let (node, (found, context)) = (Arc::clone(&self.node), oneshot::channel());
        // A task, since timers outside of one panic when the runtime ends before there is an engine.
        self.runtime.spawn(async move {
            let _ = found.send(node.wait_for_engine(&search).await);
        });
        let ended = |_| Failure::user("the process ends before there was an engine");
        context.blocking_recv().map_err(ended)
    }

    /// Sends the requests of a model to engines, until the result is dropped.
    pub(crate) fn relay(&self, model: RelayedModel) -> Result<Relaying, Failure> {
        let _inside = self.runtime.enter();
        self.node.relay(model).map_err(Failure::user)
    }

    /// Why requests for a relayed model cannot wait for an engine any longer.
    pub(crate) fn engine_absence(&self, key: String) -> EngineAbsence {
        let node = Arc::clone(&self.node);
        Box::new(move || node.engine_absence(&key))
    }

    /// The arithmetic of a relayed model's engines.
    pub(crate) fn engine_arithmetic(&self, key: String) -> EngineArithmetic {
        let node = Arc::clone(&self.node);
        Box::new(move || node.engine_arithmetic(&key))
    }

    /// Whether engines of a relayed model have this tower.
    pub(crate) fn engine_sight(&self, key: String, tower: String) -> EngineSight {
        let node = Arc::clone(&self.node);
        Box::new(move || node.engines_see(&key, &tower))
    }

    /// Has images of other gateways' requests decoded in this way. To be called once, before a model is offered.
    pub(crate) fn decode_images_by(&self, decode: DecodeImages) {
        let _ = self.decode.set(decode);
    }

    /// Offers a loaded model to gateways.
    pub(crate) fn execute(&self, loaded: &LoadedEngine) -> Result<(), Failure> {
        let identity = content_identity(&loaded.identity);
        let mut model = ExecutorModel::new(loaded.name.clone(), identity, loaded.handle.clone());
        if let Some(now) = &loaded.arithmetic_now {
            let now = Arc::clone(now);
            model = model.with_arithmetic(Arc::new(move || now().pop_first()));
        }
        let work = (vec![model], self.decode.get().cloned());
        let executed = self.node.execute(work, &loaded.step_signal);
        self.runtime.block_on(executed).map_err(Failure::user)
    }
}

/// Instances that own streams, beside this one.
fn other_gateways(membership: &Membership) -> Vec<InstanceId> {
    let instances = membership.instances().into_iter();
    let gateways = instances.filter(|instance| instance.heartbeat.role != Role::Engine);
    gateways.map(|instance| instance.heartbeat.id).collect()
}

/// State of the owner of a stream, by other instances' heartbeats. `predecessor` has had the journal of this process.
fn owner_state(
    membership: &Membership,
    predecessor: Option<InstanceId>,
    owner: InstanceId,
) -> OwnerState {
    let Some(instance) = membership.get(owner) else {
        let is_gone = predecessor == Some(owner) || membership.has_heard_all();
        return if is_gone {
            OwnerState::Gone
        } else {
            OwnerState::Silent
        };
    };
    match instance.state {
        InstanceState::Alive => OwnerState::Alive(instance.trusted_address().map(str::to_owned)),
        InstanceState::Suspected => OwnerState::Silent,
        // One that shuts down has handed its streams over.
        InstanceState::Leaving | InstanceState::Gone => OwnerState::Gone,
    }
}
