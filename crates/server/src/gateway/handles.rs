//! Handles on the gateway's services.
//!
//! Each service is shared by an `Arc`; a function takes the handles that it uses.

use crate::gateway::id_generator::IdGenerator;
use crate::gateway::job_names::JobNames;
use crate::gateway::limits::LiveLimits;
use crate::gateway::metrics::GenerationMetrics;
use crate::gateway::response_store::Store;
use crate::gateway::served::ModelRegistry;
use crate::gateway::streams::{StreamFeed, StreamLimits, Streams};
use std::sync::Arc;

/// Handles that a generation uses from its admission to its end.
#[derive(Clone)]
pub(crate) struct GenerationHandles {
    pub(crate) streams: Arc<Streams>,
    pub(crate) limits: Arc<LiveLimits>,
    pub(crate) ids: Arc<IdGenerator>,
    pub(crate) metrics: Arc<GenerationMetrics>,
}

/// Handles that opening a stream for a request uses.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) models: Arc<ModelRegistry>,
    pub(crate) responses: Arc<Store>,
    pub(crate) job_names: Arc<JobNames>,
    pub(crate) generations: GenerationHandles,
}

impl Gateway {
    /// Services without any stream, for these models.
    pub(crate) fn new(
        limits: Arc<LiveLimits>,
        models: Arc<ModelRegistry>,
        metrics: Arc<GenerationMetrics>,
        feed: StreamFeed,
    ) -> Self {
        let now = limits.now();
        let streams = Streams::new(now.streams, now.retry_after, feed);
        Self {
            models,
            responses: Arc::new(Store::new(Arc::clone(&limits))),
            job_names: Arc::new(JobNames::new(job_names_max(&now.streams))),
            generations: GenerationHandles {
                streams: Arc::new(streams),
                limits,
                ids: Arc::new(IdGenerator::new()),
                metrics,
            },
        }
    }

    /// Applies limits that were replaced in [`LiveLimits`] to what exists.
    pub(crate) fn apply_limits(&self) {
        let streams = self.generations.limits.now().streams;
        self.generations.streams.rebound(streams);
        self.responses.rebound();
        self.job_names.rebound(job_names_max(&streams));
        self.models.rebound();
    }
}

/// Streams that can exist at one time; each may be a job with a name.
fn job_names_max(streams: &StreamLimits) -> usize {
    streams.open_max + streams.retained_max
}
