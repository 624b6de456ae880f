//! Limits and clocks of the gateway, as the operator has configured them.

use crate::keys::PrefixSharing;
use crate::streams::StreamLimits;
use admission::{AdaptiveLimits, QueueLimits, Reservation};
use engine::{Clocks, Policy};
use generate::error::ApiError;
use generate::sampling::SamplingDefaults;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
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
    /// Bytes of files and pixels of images that requests have together.
    pub pixels_bytes_max: u64,
    /// Bytes that decoding images may hold.
    pub decode_bytes_max: u64,
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

#[cfg(test)]
impl GatewayLimits {
    /// Limits of tests, with these of stored responses.
    pub(crate) fn of_tests(responses: ResponseLimits) -> Self {
        Self {
            pixels_bytes_max: 0,
            decode_bytes_max: 0,
            open_requests_max: 8,
            inline_prompt_bytes_max: 1 << 10,
            credit_window: 0,
            adaptive_limits: AdaptiveLimits::default(),
            queue: QueueLimits::default(),
            reservation: Reservation::default(),
            clocks: StreamClocks::default(),
            streams: StreamLimits::default(),
            responses,
            models: ModelLimits::default(),
            reasoning_field: ReasoningField::default(),
            closed_objects: false,
            sampling: generate::sampling::SamplingDefaults::default(),
            prefix_sharing: PrefixSharing::default(),
            retry_after: Duration::from_secs(1),
            drain: Duration::from_secs(1),
        }
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

/// The clocks that run while the engine has a request (section `clocks`, and `backpressure` for the reader's): when a
/// request has taken too long. `None` = never. Waiting for a permit is `queue.timeout`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamClocks {
    /// From the start in the engine to the first token.
    pub first_token: Option<Duration>,
    /// From one token to the next, while the sequence is not parked.
    pub idle: Option<Duration>,
    /// From arrival to end.
    pub total: Option<Duration>,
    /// How long a stream may be parked because the reader takes nothing (`backpressure.ack_timeout_ms`).
    pub reader: Option<Duration>,
    /// Consequence of `reader` (`backpressure.policy`). A resumable stream is never canceled: with both `Cancel`
    /// and `Detach` the stream continues as if the client had disconnected.
    pub policy: Policy,
}

impl StreamClocks {
    /// The engine's timeouts. The engine's queue is short: queue time is spent in admission.
    pub fn of_engine(self) -> Clocks {
        Clocks {
            queue: None,
            first_token: self.first_token,
            idle: self.idle,
            total: self.total,
            reader: self.reader,
        }
    }

    /// Whether a plain stream can become a resumable one.
    pub(crate) fn detaches(&self) -> bool {
        self.policy == Policy::Detach && self.reader.is_some()
    }

    /// How long a reader may take nothing before the detached driver revokes the reader's credit.
    pub(crate) fn reader_patience(&self) -> Option<Duration> {
        self.reader.filter(|_| self.policy != Policy::Keep)
    }
}

impl Default for StreamClocks {
    fn default() -> Self {
        Self {
            first_token: Some(Duration::from_secs(30 * 60)),
            idle: Some(Duration::from_secs(30 * 60)),
            total: Some(Duration::from_secs(6 * 3600)),
            reader: Some(Duration::from_secs(30)),
            policy: Policy::Cancel,
        }
    }
}

/// Bounds of the models that are loaded on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Bytes that loaded models may have together; `None`: no bound. The least recently used model is evicted.
    pub memory_bytes: Option<u64>,
    /// How long a model that was loaded on demand stays without a request; `None`: forever.
    pub idle: Option<Duration>,
    /// Requests that may wait for models that are being loaded.
    pub waiting_max: usize,
    /// How long one may wait.
    pub patience: Duration,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            idle: Some(Duration::from_secs(300)),
            waiting_max: 256,
            patience: Duration::from_secs(600),
        }
    }
}

/// Requests without a permit whose work is offloaded at one time: requests with a permit must find a free thread.
const OFFLOADED_MAX: usize = 1;

/// Runs work with a duration that grows with the length of a body.
pub struct Offload {
    limits: Arc<LiveLimits>,
    slots: Arc<Semaphore>,
}

impl Offload {
    /// A runner without work.
    pub fn new(limits: Arc<LiveLimits>) -> Self {
        Self {
            limits,
            slots: Arc::new(Semaphore::new(OFFLOADED_MAX)),
        }
    }

    /// Runs `work` on a body of this length: in place if the body is short (`inline_prompt_bytes_max`), else offloaded
    /// as soon as a slot is free.
    ///
    /// # Errors
    /// Those of `work`, and a panic in `work`.
    pub async fn run_work<T: Send + 'static>(
        &self,
        body_bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if body_bytes <= self.limits.now().inline_prompt_bytes_max {
            return work();
        }
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let slot = slot.map_err(|_| not_processed())?;
        // Running work keeps the slot to the end, also if the request is dropped.
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(slot);
            done
        });
        done.await.unwrap_or_else(|_| Err(not_processed()))
    }
}

fn not_processed() -> ApiError {
    ApiError::ours("internal_error", "the request could not be processed")
}
