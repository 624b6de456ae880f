//! The services of a running server, and the handles that reach them.

use crate::connection::AnswerBuffers;
use crate::gateway::handles::Gateway;
use crate::gateway::job_names::JobNames;
use crate::gateway::lifecycle::Lifecycle;
use crate::gateway::limits::LiveLimits;
use crate::gateway::response_store::Store;
use crate::gateway::served::ServedModels;
use crate::gateway::streams::{StreamFeed, Streams};
use crate::live_config::LiveConfig;
use crate::metrics::Metrics;
use crate::realtime::Sockets;
use crate::stream_response::StreamResponder;
use crate::wire::ollama;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The services of a running server.
pub(crate) struct App {
    pub(crate) gateway: Gateway,
    pub(crate) models: Arc<ServedModels>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) responses: Arc<Store>,
    pub(crate) job_names: Arc<JobNames>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) config: Arc<LiveConfig>,
    pub(crate) feed: StreamFeed,
    pub(crate) sockets: Sockets,
    pub(crate) metrics: Arc<Metrics>,
    /// Permits for model downloads.
    pub(crate) pulls: Arc<Semaphore>,
    pub(crate) responder: StreamResponder,
    pub(crate) answer_buffers: AnswerBuffers,
}

impl App {
    /// The services of a server without requests.
    pub(crate) fn new(
        config: Arc<LiveConfig>,
        limits: Arc<LiveLimits>,
        models: Arc<ServedModels>,
    ) -> Self {
        let (feed, metrics) = (StreamFeed::new(), Arc::<Metrics>::default());
        let generations = Arc::clone(&metrics.generations);
        let gateway = Gateway::new(limits, Arc::clone(&models), generations, feed.clone());
        Self {
            streams: Arc::clone(&gateway.generations.streams),
            responses: Arc::clone(&gateway.responses),
            job_names: Arc::clone(&gateway.job_names),
            gateway,
            lifecycle: Arc::new(Lifecycle::new(Arc::clone(&models))),
            feed,
            sockets: Sockets::default(),
            pulls: ollama::pull_turns(),
            answer_buffers: AnswerBuffers::new(config.now().answer_buffers_bytes_max),
            responder: StreamResponder::new(Arc::clone(&config), Arc::clone(&metrics)),
            metrics,
            models,
            config,
        }
    }
}
