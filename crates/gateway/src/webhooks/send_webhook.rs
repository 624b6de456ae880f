//! One attempt of a delivery, as the driver of the HTTP client sees it.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct WebhookRequest {
    /// An `http` or `https` URL of an allowed host.
    pub url: String,
    /// Header `webhook-id`.
    pub id: String,
    /// Header `webhook-timestamp`.
    pub unix_s: i64,
    /// Header `webhook-signature`.
    pub signatures: String,
    /// The event as JSON.
    pub body: Arc<str>,
    /// Time of the whole attempt.
    pub timeout: Duration,
    /// Whether the host may have addresses that are not public.
    pub allow_private: bool,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver has answered.
    Answered {
        /// HTTP status.
        status: u16,
        /// `Retry-After` as a delay.
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    Failed(String),
}

/// Sends requests without blocking the caller. An outcome that is dropped counts as a failure.
pub trait SendWebhook: Send + Sync {
    /// Sends a request.
    fn send(&self, request: WebhookRequest, outcome: oneshot::Sender<AttemptOutcome>);
}
