//! Limits and clocks of the gateway, as the operator has configured them.

use crate::gateway::admission::{AdaptiveLimits, QueueLimits, Reservation};
use crate::gateway::keys::PrefixSharing;
use crate::gateway::response_limits::ResponseLimits;
use crate::gateway::served::ModelLimits;
use crate::gateway::stream_clocks::StreamClocks;
use crate::gateway::streams::StreamLimits;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use wire::openai::chat_encoder::ReasoningField;

/// Limits and clocks of the gateway. Each is described at the field of `ServerConfig` with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GatewayLimits {
    pub(crate) open_requests_max: usize,
    pub(crate) inline_prompt_bytes_max: usize,
    pub(crate) credit_window: u64,
    pub(crate) adaptive_limits: AdaptiveLimits,
    pub(crate) queue: QueueLimits,
    pub(crate) reservation: Reservation,
    pub(crate) clocks: StreamClocks,
    pub(crate) streams: StreamLimits,
    pub(crate) responses: ResponseLimits,
    pub(crate) models: ModelLimits,
    pub(crate) reasoning_field: ReasoningField,
    pub(crate) closed_objects: bool,
    pub(crate) prefix_sharing: PrefixSharing,
    pub(crate) retry_after: Duration,
    pub(crate) drain: Duration,
}

/// The limits that hold now. A request keeps the limits that it began with.
pub(crate) struct LiveLimits {
    now: watch::Sender<Arc<GatewayLimits>>,
}

impl LiveLimits {
    /// The limits that the server starts with.
    pub(crate) fn new(limits: GatewayLimits) -> Self {
        Self {
            now: watch::Sender::new(Arc::new(limits)),
        }
    }

    /// The limits that hold now.
    pub(crate) fn now(&self) -> Arc<GatewayLimits> {
        Arc::clone(&self.now.borrow())
    }

    /// Replaces the limits for everything that begins from now on.
    pub(crate) fn set(&self, limits: GatewayLimits) {
        self.now.send_replace(Arc::new(limits));
    }
}
