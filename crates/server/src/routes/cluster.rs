//! `/v1/cluster`: this process and the other instances of its cluster.

use crate::ClusterSlot;
use crate::response::Rejected;
use ::cluster::instances::{Difference, InstanceState, LiveInstance};
use ::cluster::messages::{Heartbeat, ServedModel};
use ::cluster::nats::ConnectionState;
use ::cluster::node::ClusterNode;
use axum::Json;
use axum::extract::State;
use gateway::owners_slot::{OwnersSlot, RecordsReport};
use generate::error::{ApiError, ErrorKind};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use wire::clock;

pub(crate) async fn show_cluster(
    State(cluster): State<ClusterSlot>,
    State(owners): State<Arc<OwnersSlot>>,
) -> Result<Json<ClusterReport>, Rejected> {
    let node = cluster.get().ok_or_else(|| {
        let message = "this process is in no cluster (cluster.servers is empty)";
        ApiError::caller(ErrorKind::NotFound, "no_cluster", message)
    })?;
    let records = owners
        .get()
        .map(|owners| RecordsState::new(&owners.report()));
    Ok(Json(ClusterReport::of_node(node, records)))
}

/// A cluster, as one of its processes knows it.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ClusterReport {
    /// Name of the cluster.
    name: String,
    /// Id of the process that answers.
    instance: String,
    /// The cluster that this process belongs to: two clusters that use one name differ in it. Absent at engines, and until a
    /// gateway knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    nats: NatsReport,
    /// Why this process cannot do its part now.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// What an operator has to look after although this process works.
    warnings: Vec<String>,
    /// Records of streams in JetStream; absent where this process owns no streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<RecordsState>,
    /// All instances; the one that answers is the first.
    instances: Vec<InstanceReport>,
}

/// The connection to NATS.
#[derive(JsonSchema, Serialize)]
struct NatsReport {
    connected: bool,
    /// Name of the NATS server.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// Version of the NATS server.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Why there is no usable connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Rights that this process lacks.
    denied: Vec<String>,
}

/// Records of streams in JetStream, from which another gateway continues the streams of one that is gone.
#[derive(JsonSchema, Serialize)]
struct RecordsState {
    /// Whether records can be stored.
    stored: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Streams whose records are stored, or on the way.
    replicated: usize,
    /// Streams of which records are missing.
    missing: usize,
    /// Bytes of records that are not stored yet.
    behind_bytes: usize,
    /// Age of the oldest of them.
    lag_ms: u64,
    /// Bytes of all gateways' records in JetStream.
    store_bytes: u64,
}

impl RecordsState {
    fn new(report: &RecordsReport) -> Self {
        Self {
            stored: report.is_stored,
            reason: report.problem.clone(),
            replicated: report.followed,
            missing: report.missing,
            behind_bytes: report.behind_bytes,
            lag_ms: u64::try_from(report.lag.as_millis()).unwrap_or(u64::MAX),
            store_bytes: report.store_bytes,
        }
    }
}

/// A process of the cluster.
#[derive(JsonSchema, Serialize)]
struct InstanceReport {
    id: String,
    /// `all`, `gateway` or `engine`.
    role: &'static str,
    /// `alive`, `suspected`, `leaving` or `gone`.
    state: &'static str,
    version: String,
    /// Host and port of the HTTP interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// Milliseconds since the last heartbeat.
    heard_ms: u64,
    /// Seconds since the instance has joined the cluster.
    uptime_s: u64,
    /// Streams that the instance owns; absent at an engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<StreamsReport>,
    models: Vec<ModelReport>,
    /// Differences of this instance from the one that answers.
    differences: Vec<String>,
}

/// Streams of a gateway.
#[derive(JsonSchema, Serialize)]
struct StreamsReport {
    open: u64,
    /// Ended, and retained.
    retained: u64,
}

/// A model of an instance.
#[derive(JsonSchema, Serialize)]
struct ModelReport {
    id: String,
    /// Tokens that prompt and answer may have together.
    context: u64,
    /// Digest of the weights.
    weights: String,
    /// Load of the engine; absent at a gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<LoadReport>,
}

/// The load of a model's engine.
#[derive(JsonSchema, Serialize)]
struct LoadReport {
    queued: u32,
    running: u32,
    slots: u32,
    pages_total: u64,
    pages_free: u64,
    pages_cached: u64,
    /// Time of the last step.
    step_us: u64,
}

impl ClusterReport {
    fn of_node(node: &ClusterNode, records: Option<RecordsState>) -> Self {
        let membership = node.membership();
        let own = membership.own();
        let state = if own.leaving {
            InstanceState::Leaving
        } else {
            InstanceState::Alive
        };
        let mut instances = vec![InstanceReport::new(&own, state, 0, &[])];
        instances.extend(membership.instances().iter().map(InstanceReport::of_live));
        Self {
            name: own.cluster.clone(),
            instance: own.id.to_string(),
            id: node.identity().announced().map(|id| id.to_string()),
            nats: NatsReport::of_node(node),
            problem: node.problem(),
            warnings: membership.warnings(),
            records,
            instances,
        }
    }
}

impl NatsReport {
    fn of_node(node: &ClusterNode) -> Self {
        let connection = node.connection();
        let server = match connection.state() {
            ConnectionState::Connected { server, .. } | ConnectionState::Refused { server, .. } => {
                Some(server)
            }
            ConnectionState::Disconnected { .. } => None,
        };
        let (server, version) = server.map(|s| (s.name, s.version)).unzip();
        Self {
            connected: connection.is_usable(),
            server,
            version,
            reason: connection.problem(),
            denied: connection.denials(),
        }
    }
}

impl InstanceReport {
    fn of_live(instance: &LiveInstance) -> Self {
        let heard = clock::now().saturating_duration_since(instance.heard);
        let heard_ms = u64::try_from(heard.as_millis()).unwrap_or(u64::MAX);
        let (heartbeat, differences) = (&instance.heartbeat, &instance.differences);
        Self::new(heartbeat, instance.state, heard_ms, differences)
    }

    fn new(
        heartbeat: &Heartbeat,
        state: InstanceState,
        heard_ms: u64,
        differences: &[Difference],
    ) -> Self {
        Self {
            id: heartbeat.id.to_string(),
            role: heartbeat.role.name(),
            state: state.name(),
            version: heartbeat.version.clone(),
            address: heartbeat.http.clone(),
            heard_ms,
            uptime_s: heartbeat.uptime_s,
            streams: heartbeat.streams.map(|streams| StreamsReport {
                open: streams.open,
                retained: streams.retained,
            }),
            models: heartbeat
                .models
                .iter()
                .map(ModelReport::of_served)
                .collect(),
            differences: differences.iter().map(ToString::to_string).collect(),
        }
    }
}

impl ModelReport {
    fn of_served(model: &ServedModel) -> Self {
        Self {
            id: model.key.clone(),
            context: model.context_max,
            weights: model.identity.weights.clone(),
            load: model.load.map(|load| LoadReport {
                queued: load.queued,
                running: load.running,
                slots: load.slots,
                pages_total: load.pages_total,
                pages_free: load.pages_free,
                pages_cached: load.pages_cached,
                step_us: load.step_us,
            }),
        }
    }
}
