//! The services of a running server, and the handles by which handlers reach them.

use crate::config::live_config::LiveConfig;
use crate::connection::AnswerBuffers;
use crate::metrics::{Metrics, MetricsSources};
use crate::peers::{PeerCalls, Peers};
use crate::realtime::handles::{OpenSockets, RealtimeHandles};
use crate::request::model_lookup::UnadmittedHandles;
use crate::response::stream_response::StreamResponder;
use crate::routes::ollama::pull::PullSlots;
use crate::{ClusterSlot, UpstreamSlot};
use axum::extract::FromRef;
use gateway::handles::Gateway;
use gateway::job_names::JobNames;
use gateway::lifecycle::Lifecycle;
use gateway::limits::{LiveLimits, Offload};
use gateway::models::ModelRegistry;
use gateway::owners_slot::OwnersSlot;
use gateway::stored::ResponseStore;
use gateway::streams::{StreamFeed, StreamRegistry};
use gateway::webhooks::Outbox;
use std::ops::Deref;
use std::sync::Arc;

/// The state of the router. Handlers take individual handles as `State<...>`.
#[derive(Clone)]
pub(crate) struct App(Arc<Services>);

/// The services of a running server.
pub(crate) struct Services {
    pub(crate) gateway: Gateway,
    pub(crate) models: Arc<ModelRegistry>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) config: Arc<LiveConfig>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sources: MetricsSources,
    pub(crate) responder: StreamResponder,
    pub(crate) unadmitted: UnadmittedHandles,
    pub(crate) realtime: RealtimeHandles,
    pub(crate) pulls: PullSlots,
    pub(crate) feed: StreamFeed,
    pub(crate) answer_buffers: AnswerBuffers,
    pub(crate) cluster: ClusterSlot,
    pub(crate) peer_calls: Arc<PeerCalls>,
}

impl App {
    /// The services of a server that has no requests yet.
    pub(crate) fn new(
        config: Arc<LiveConfig>,
        limits: Arc<LiveLimits>,
        models: Arc<ModelRegistry>,
    ) -> Self {
        let (feed, metrics) = (StreamFeed::new(), Arc::<Metrics>::default());
        let generations = Arc::clone(&metrics.generations);
        let gateway = Gateway::new(
            Arc::clone(&limits),
            Arc::clone(&models),
            generations,
            feed.clone(),
        );
        gateway.outbox.set_settings(config.now().webhooks.clone());
        let responder =
            StreamResponder::new(gateway.clone(), Arc::clone(&config), Arc::clone(&metrics));
        let lifecycle = Arc::new(Lifecycle::new(Arc::clone(&models)));
        let cluster = ClusterSlot::default();
        let peer_calls = Arc::new(PeerCalls::new(Peers::new(Arc::clone(&cluster))));
        Self(Arc::new(Services {
            sources: MetricsSources {
                metrics: Arc::clone(&metrics),
                models: Arc::clone(&models),
                streams: Arc::clone(&gateway.generations.streams),
                journal: Arc::clone(&gateway.generations.journal),
                demand: Arc::default(),
                cluster: Arc::clone(&cluster),
                upstreams: UpstreamSlot::default(),
                outbox: Arc::clone(&gateway.outbox),
                owners: Arc::clone(&gateway.owners),
                peer_calls: Arc::clone(&peer_calls),
                media: Arc::clone(&gateway.generations.images.media),
            },
            unadmitted: UnadmittedHandles {
                models: Arc::clone(&models),
                offload: Arc::new(Offload::new(limits)),
            },
            realtime: RealtimeHandles {
                responder: responder.clone(),
                lifecycle: Arc::clone(&lifecycle),
                config: Arc::clone(&config),
                sockets: OpenSockets::default(),
                peer_calls: Arc::clone(&peer_calls),
            },
            pulls: PullSlots::default(),
            answer_buffers: AnswerBuffers::new(config.now().answer_buffers_bytes_max),
            gateway,
            responder,
            lifecycle,
            feed,
            metrics,
            models,
            config,
            cluster,
            peer_calls,
        }))
    }
}

impl Deref for App {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}

macro_rules! handles {
    ($($handle:ty = $($field:ident).+;)*) => {
        $(impl FromRef<App> for $handle {
            fn from_ref(app: &App) -> Self {
                app.$($field).+.clone()
            }
        })*
    };
}

handles! {
    ClusterSlot = cluster;
    Gateway = gateway;
    Arc<JobNames> = gateway.job_names;
    Arc<OwnersSlot> = gateway.owners;
    Arc<Lifecycle> = lifecycle;
    Arc<LiveConfig> = config;
    Arc<Offload> = unadmitted.offload;
    Arc<ModelRegistry> = models;
    Arc<ResponseStore> = gateway.responses;
    Arc<Outbox> = gateway.outbox;
    Arc<PeerCalls> = peer_calls;
    Arc<StreamRegistry> = gateway.generations.streams;
    MetricsSources = sources;
    PullSlots = pulls;
    RealtimeHandles = realtime;
    StreamFeed = feed;
    StreamResponder = responder;
    UnadmittedHandles = unadmitted;
}
