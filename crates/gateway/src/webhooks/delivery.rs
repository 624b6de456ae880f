//! A delivery: an event for one URL, and what became of the attempts.
//!
//! ```text
//! description  DeliveryRecord: id, owner, URL and event; never changes
//! outcome      DeliveryState: attempts so far, and when the next one is due
//! ```

use crate::durability::{DescriptionError, DescriptionKind, from_json, to_json};
use crate::ended::EndedStream;
use crate::stored_note::hex_id;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stream::{Owner, StreamId};

/// Version of records that are written now.
const DELIVERY_VERSION: u32 = 1;
/// Bytes of a record: the URL, and an event with an error message.
const DELIVERY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a failure that is kept.
const FAILURE_BYTES_MAX: usize = 256;
/// Prefix of ids of events.
pub(crate) const EVENT_PREFIX: &str = "evt_";

/// The part of a delivery that never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryRecord {
    kind: DescriptionKind,
    version: u32,
    /// The stream that has ended, by which the event is named.
    #[serde(with = "hex_id")]
    pub(crate) stream: StreamId,
    owner: u64,
    pub(crate) url: String,
    /// Type of the event.
    pub(crate) event: String,
    /// Id of the response, job or stream.
    pub(crate) object_id: String,
    /// The event as JSON: the same bytes in every attempt.
    pub(crate) body: String,
    pub(crate) created_unix_us: u64,
}

/// An event, as OpenAI's.
#[derive(Serialize, JsonSchema)]
pub struct WebhookEvent<'a> {
    object: &'static str,
    /// Equal to the header `webhook-id`, in every attempt.
    id: &'a str,
    /// `response.` or `job.` and the status.
    #[serde(rename = "type")]
    kind: &'a str,
    /// Seconds since the Unix epoch.
    created_at: i64,
    data: &'a EndedStream,
}

impl DeliveryRecord {
    pub(crate) fn new(
        (stream, owner): (StreamId, Owner),
        url: &str,
        end: &EndedStream,
        now_unix_us: u64,
    ) -> Self {
        let event = format!("{}.{}", end.object, end.status);
        let body = WebhookEvent {
            object: "event",
            id: &event_id(stream),
            kind: &event,
            created_at: end.ended_at,
            data: end,
        };
        Self {
            kind: DescriptionKind::WebhookDelivery,
            version: DELIVERY_VERSION,
            stream,
            owner: owner.0,
            url: url.to_owned(),
            // Strings and numbers are always JSON.
            body: serde_json::to_string(&body).unwrap_or_default(),
            event,
            object_id: end.id.clone(),
            created_unix_us: now_unix_us,
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner(self.owner)
    }

    /// Id of the event.
    pub(crate) fn id(&self) -> String {
        event_id(self.stream)
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, DescriptionError> {
        to_json::<Self>(self, DELIVERY_BYTES_MAX)
    }

    pub(crate) fn decode(description: &[u8]) -> Result<Self, DescriptionError> {
        let record: Self = from_json(description, DELIVERY_BYTES_MAX)?;
        if record.kind != DescriptionKind::WebhookDelivery || record.version > DELIVERY_VERSION {
            let found = format!("kind {:?}, version {}", record.kind, record.version);
            return Err(DescriptionError::Invalid(found));
        }
        Ok(record)
    }
}

fn event_id(stream: StreamId) -> String {
    format!("{EVENT_PREFIX}{stream}")
}

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

/// What became of the attempts.
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
    pub(crate) fn new(record: &DeliveryRecord, state: &DeliveryState) -> Self {
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
