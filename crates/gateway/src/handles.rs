//! Handles on the gateway's services.
//!
//! Each service is shared by an `Arc`; a function takes only the handles that the function uses.

use crate::ended::EndReports;
use crate::id_generator::IdGenerator;
use crate::job_names::JobNames;
use crate::limits::LiveLimits;
use crate::media::MediaHandles;
use crate::metrics::GenerationMetrics;
use crate::models::ModelRegistry;
use crate::owners_slot::OwnersSlot;
use crate::remote_images::RemoteImages;
use crate::stored::ResponseStore;
use crate::streams::{JournalSlot, RegistrationBarrier, StreamFeed, StreamLimits, StreamRegistry};
use crate::webhooks::Outbox;
use std::sync::{Arc, OnceLock};

/// Handles that a generation uses from admission to end.
#[derive(Clone)]
pub struct GenerationHandles {
    /// The registry of streams.
    pub streams: Arc<StreamRegistry>,
    /// The limits that hold now.
    pub limits: Arc<LiveLimits>,
    /// The source of new ids.
    pub ids: Arc<IdGenerator>,
    /// Metrics of generations.
    pub metrics: Arc<GenerationMetrics>,
    /// The journal of durable streams.
    pub journal: Arc<JournalSlot>,
    /// Images of requests.
    pub images: Arc<ImageHandles>,
}

/// Handles that requests with images use.
pub struct ImageHandles {
    /// Threads and budgets.
    pub media: Arc<MediaHandles>,
    /// All models: one may describe images for another.
    pub models: Arc<ModelRegistry>,
    /// Images on other servers; not set: they are not fetched.
    pub remote: OnceLock<RemoteImages>,
}

/// Handles that opening a stream for a request uses.
#[derive(Clone)]
pub struct Gateway {
    /// All models.
    pub models: Arc<ModelRegistry>,
    /// Stored responses and chat completions.
    pub responses: Arc<ResponseStore>,
    /// Names of jobs that clients have chosen.
    pub job_names: Arc<JobNames>,
    /// Handles of a generation.
    pub generations: GenerationHandles,
    /// Events to be delivered to webhooks.
    pub outbox: Arc<Outbox>,
    /// Requests that name a stream wait for the streams of earlier processes.
    pub registration: Arc<RegistrationBarrier>,
    /// Other gateways' streams.
    pub owners: Arc<OwnersSlot>,
}

impl Gateway {
    /// Services without any stream, for these models.
    pub fn new(
        limits: Arc<LiveLimits>,
        models: Arc<ModelRegistry>,
        metrics: Arc<GenerationMetrics>,
        feed: StreamFeed,
    ) -> Self {
        let now = limits.now();
        let streams = StreamRegistry::new(now.streams, now.retry_after, feed);
        let (journal, ids) = (Arc::<JournalSlot>::default(), Arc::new(IdGenerator::new()));
        let media = Arc::<MediaHandles>::default();
        let shared = (Arc::clone(&ids), Arc::clone(&media));
        let responses = ResponseStore::new(Arc::clone(&limits), Arc::clone(&journal), shared);
        let outbox = Outbox::new(Arc::clone(&journal), Arc::clone(&ids));
        let images = ImageHandles {
            media,
            models: Arc::clone(&models),
            remote: OnceLock::new(),
        };
        Self {
            models,
            outbox: Arc::new(outbox),
            responses: Arc::new(responses),
            job_names: Arc::new(JobNames::new(job_names_max(&now.streams))),
            generations: GenerationHandles {
                streams: Arc::new(streams),
                limits,
                ids,
                metrics,
                journal,
                images: Arc::new(images),
            },
            registration: Arc::default(),
            owners: Arc::default(),
        }
    }

    /// Reports of ends to webhooks.
    pub(crate) fn end_reports(&self) -> EndReports {
        EndReports::new(Arc::clone(&self.outbox), Arc::clone(&self.owners))
    }

    /// Applies limits that were replaced in [`LiveLimits`] to existing streams, responses and models.
    pub fn apply_limits(&self) {
        let streams = self.generations.limits.now().streams;
        self.generations.streams.set_limits(streams);
        self.responses.apply_limits();
        self.job_names.set_max(job_names_max(&streams));
        self.models.apply_limits();
    }
}

/// Streams that can exist at one time; each may be a job with a name.
fn job_names_max(streams: &StreamLimits) -> usize {
    streams.open_max + streams.retained_max
}
