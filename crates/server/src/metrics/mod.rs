//! Metrics of the server: counters and gauges of connections and requests, and the exposition of all metrics.
//!
//! ```text
//! counted_socket  bytes and connections
//! demand          forecast of requests and tokens
//! http            HTTP requests, by route and status
//! merged_text     the metrics of several instances
//! family_table    name, type, labels and meaning of all families
//! families        their samples, with those of the gateway and of the engine, as Prometheus text
//! snapshot        the most important metrics, with quantiles, as one JSON value
//! ```
//!
//! Every value is an atomic integer that any thread can add to; see [`gateway::metrics`].

mod counted_socket;
mod demand;
mod families;
mod family_table;
mod http;
mod merged_text;
mod prometheus_text;
mod snapshot;

pub(crate) use counted_socket::CountedSocket;
pub(crate) use demand::{DemandMeter, watch_demand};
pub(crate) use http::{count_request, show_metrics};
pub(crate) use snapshot::{MetricsSnapshot, take_snapshot};

use self::http::StatusCounters;
use crate::peers::PeerCalls;
use crate::{ClusterSlot, UpstreamSlot};
use gateway::media::MediaHandles;
use gateway::metrics::GenerationMetrics;
use gateway::metrics::counters::{Counter, Gauge, LabelTable};
use gateway::models::ModelRegistry;
use gateway::owners_slot::OwnersSlot;
use gateway::streams::{JournalSlot, StreamRegistry};
use gateway::webhooks::Outbox;
use std::sync::Arc;

/// Routes with counters of their own (180 bytes each); the server has fewer routes.
const ROUTES_MAX: usize = 128;
/// Error codes with a counter of their own.
const REASONS_MAX: usize = 64;

/// Metrics of connections and requests.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    connections_open: Gauge,
    connections_accepted: Counter,
    bytes_received: Counter,
    bytes_sent: Counter,
    requests: LabelTable<StatusCounters, ROUTES_MAX>,
    rejections: LabelTable<Counter, REASONS_MAX>,
    pub(crate) generations: Arc<GenerationMetrics>,
}

/// Services that are exposed as metrics.
#[derive(Clone)]
pub(crate) struct MetricsSources {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) models: Arc<ModelRegistry>,
    pub(crate) streams: Arc<StreamRegistry>,
    pub(crate) journal: Arc<JournalSlot>,
    pub(crate) demand: Arc<DemandMeter>,
    pub(crate) cluster: ClusterSlot,
    pub(crate) upstreams: UpstreamSlot,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) owners: Arc<OwnersSlot>,
    pub(crate) peer_calls: Arc<PeerCalls>,
    pub(crate) media: Arc<MediaHandles>,
}

impl Metrics {
    /// Counts a rejected request or connection by error code.
    pub(crate) fn count_rejection(&self, code: &str) {
        self.rejections.value_of(code).add(1);
    }
}
