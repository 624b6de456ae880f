//! Deliveries: an event for one URL, its records in the journal, and the task that attempts what is due.
//!
//! ```text
//! description  EventRecord: id, owner, URL and event; never changes
//! outcome      DeliveryState: attempts so far, and when the next one is due
//! ```

use super::Outbox;
use super::attempt::WebhookSender;
use super::outbox::DueDelivery;
use crate::ended::EventRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use wire::clock;

/// Bytes of a failure that is kept.
const FAILURE_BYTES_MAX: usize = 256;

/// Whether a delivery is still attempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryStatus {
    /// Attempts go on.
    #[default]
    Pending,
    /// Attempts have ended without success.
    Dead,
}

/// Outcome of the attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DeliveryState {
    pub(crate) status: DeliveryStatus,
    pub(crate) attempts: u32,
    /// Wall time from which the age counts: the creation, or the last redelivery.
    pub(crate) since_unix_us: u64,
    /// Wall time of the next attempt.
    pub(crate) next_unix_us: u64,
    /// Wall time of the last attempt.
    pub(crate) last_unix_us: Option<u64>,
    /// HTTP status of the last attempt.
    pub(crate) last_status: Option<u16>,
    pub(crate) last_failure: Option<String>,
}

impl DeliveryState {
    /// A delivery that is due now.
    pub(crate) fn due(now_unix_us: u64) -> Self {
        Self {
            since_unix_us: now_unix_us,
            next_unix_us: now_unix_us,
            ..Self::default()
        }
    }

    pub(crate) fn set_failure(&mut self, failure: &str) {
        let end = failure.floor_char_boundary(FAILURE_BYTES_MAX);
        self.last_failure = Some(failure[..end].to_owned());
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // Strings and numbers are always JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// A state that cannot be read is that of a delivery without an attempt.
    pub(crate) fn decode(outcome: Option<&[u8]>, now_unix_us: u64) -> Self {
        let read = outcome.and_then(|outcome| serde_json::from_slice(outcome).ok());
        read.unwrap_or_else(|| Self::due(now_unix_us))
    }
}

/// A delivery in the API.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "WebhookDelivery")]
pub struct DeliveryDescription {
    object: &'static str,
    /// Id of the event.
    pub id: String,
    /// Type of the event.
    #[serde(rename = "type")]
    event: String,
    url: String,
    /// Id of the response or job.
    object_id: String,
    stream_id: String,
    status: DeliveryStatus,
    attempts: u32,
    /// Seconds since the Unix epoch.
    created_at: u64,
    /// Time of the next attempt; `null` for a dead letter.
    next_attempt_at: Option<u64>,
    last_attempt_at: Option<u64>,
    /// HTTP status of the last attempt; `null` without a response.
    last_status: Option<u16>,
    last_failure: Option<String>,
}

impl DeliveryDescription {
    pub(crate) fn new(record: &EventRecord, state: &DeliveryState) -> Self {
        let seconds = |unix_us: u64| unix_us / 1_000_000;
        let is_pending = state.status == DeliveryStatus::Pending;
        Self {
            object: "webhook.delivery",
            id: record.id(),
            event: record.event.clone(),
            url: record.url.clone(),
            object_id: record.object_id.clone(),
            stream_id: record.stream.to_string(),
            status: state.status,
            attempts: state.attempts,
            created_at: seconds(record.created_unix_us),
            next_attempt_at: is_pending.then(|| seconds(state.next_unix_us)),
            last_attempt_at: state.last_unix_us.map(seconds),
            last_status: state.last_status,
            last_failure: state.last_failure.clone(),
        }
    }
}

/// Time until the table is read again in any case: the wall clock may be set.
const LOOK: Duration = Duration::from_secs(60);

/// Attempts the deliveries that are due, forever. Dropping the future leaves the attempts in flight without a record:
/// they are repeated.
pub async fn run_deliveries(outbox: Arc<Outbox>) {
    let sender = Arc::new(WebhookSender::new());
    let mut attempts = JoinSet::new();
    loop {
        while let Some(attempt) = outbox.begin_attempt() {
            attempts.spawn(send(Arc::clone(&outbox), Arc::clone(&sender), attempt));
        }
        let wait = outbox.next_due().map_or(LOOK, |due_unix_us| {
            Duration::from_micros(due_unix_us.saturating_sub(clock::unix_us())).min(LOOK)
        });
        tokio::select! {
            () = outbox.news.notified() => {}
            Some(_) = attempts.join_next() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Sends one request after its delivery is in the journal: a success that the next process does not know of is an event
/// that arrives twice, and never one that is lost.
async fn send(outbox: Arc<Outbox>, sender: Arc<WebhookSender>, attempt: DueDelivery) {
    if let Some(blob) = &attempt.blob {
        blob.written().await;
    }
    let outcome = sender.send(attempt.request).await;
    outbox.finish_attempt(attempt.stream, &outcome);
}
