//! Limits and clocks of the gateway, as the operator has configured them.

use crate::keys::PrefixSharing;
use crate::models::ModelLimits;
use crate::stream_clocks::StreamClocks;
use crate::streams::StreamLimits;
use admission::{AdaptiveLimits, QueueLimits, Reservation};
use generate::sampling_defaults::SamplingDefaults;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use wire::openai::chat_encoder::ReasoningField;

/// Limits and timeouts of the gateway. Each is described at the field of `ServerConfig` with the same name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatewayLimits {
    /// Requests that run or wait.
    pub open_requests_max: usize,
    /// Longest prompt that is tokenized on an I/O thread, in bytes.
    pub inline_prompt_bytes_max: usize,
    /// Tokens that a stream may be ahead of the reader.
    pub credit_window: u64,
    /// Bounds of the concurrency limit.
    pub adaptive_limits: AdaptiveLimits,
    /// Bounds of the admission queue.
    pub queue: QueueLimits,
    /// How many pages a request reserves.
    pub reservation: Reservation,
    /// Timeouts of a stream.
    pub clocks: StreamClocks,
    /// Bounds of the registry of streams.
    pub streams: StreamLimits,
    /// Bounds of stored responses.
    pub responses: ResponseLimits,
    /// Bounds of loaded models.
    pub models: ModelLimits,
    /// Field of chat messages with the reasoning.
    pub reasoning_field: ReasoningField,
    /// Whether schemas without `additionalProperties` forbid additional properties.
    pub closed_objects: bool,
    /// The operator's sampling parameters for requests that set none.
    pub sampling: SamplingDefaults,
    /// Which callers share cached prefixes.
    pub prefix_sharing: PrefixSharing,
    /// `Retry-After` as long as nothing was measured.
    pub retry_after: Duration,
    /// Time in which running streams may end at shutdown and unload.
    pub drain: Duration,
}

impl GatewayLimits {
    /// Sampling parameters of requests that set none, for a model with these recommended ones.
    pub fn sampling_defaults(&self, recommended: SamplingDefaults) -> SamplingDefaults {
        self.sampling
            .or(recommended)
            .or(SamplingDefaults::LLAMA_CPP)
    }
}

/// The limits that hold now. A request keeps the limits from the request's start.
pub struct LiveLimits {
    now: watch::Sender<Arc<GatewayLimits>>,
}

impl LiveLimits {
    /// The limits that the server starts with.
    pub fn new(limits: GatewayLimits) -> Self {
        Self {
            now: watch::Sender::new(Arc::new(limits)),
        }
    }

    /// The limits that hold now.
    pub fn now(&self) -> Arc<GatewayLimits> {
        Arc::clone(&self.now.borrow())
    }

    /// Replaces the limits for everything that begins from now on.
    pub fn set(&self, limits: GatewayLimits) {
        self.now.send_replace(Arc::new(limits));
    }
}

/// Bounds of stored responses (`responses.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Responses stored at one time, running ones included. The owner with the most responses loses the least
    /// recently used one; if all responses are running, a further one is rejected with 503.
    pub stored_max: usize,
    /// Bytes of stored input and output items, evicted likewise.
    pub stored_bytes: usize,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            stored_max: 4096,
            stored_bytes: 64 << 20,
        }
    }
}
