//! Reports of ends to webhooks: a task for each stream with a webhook waits for the end and records the event.
//!
//! The event is an object of the journal. Behind it the stream's records note that the event was recorded, so a later
//! process records the events of ends without this note. A process that dies between the two finds the object by the
//! stream's id.

use super::EndedStream;
use crate::id_generator::IdGenerator;
use crate::owners_slot::OwnersSlot;
use crate::records::{DescriptionError, DescriptionKind, from_json, to_json};
use crate::stored::hex_id;
use crate::streams::{JournalSlot, StoredBlob, StreamRecord};
use crate::webhooks::{Outbox, WebhookPlace};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};
use stream::{Owner, StreamId};

/// Reports of ends to webhooks.
#[derive(Clone)]
pub struct EndReports {
    outbox: Arc<Outbox>,
    owners: Arc<OwnersSlot>,
}

impl EndReports {
    pub(crate) fn new(outbox: Arc<Outbox>, owners: Arc<OwnersSlot>) -> Self {
        Self { outbox, owners }
    }

    /// Reports the end of a stream. To be called inside a runtime.
    pub(crate) fn watch(&self, record: &Arc<StreamRecord>, place: Option<WebhookPlace>) {
        if let Some(place) = place {
            tokio::spawn(self.clone().report(Arc::clone(record), place));
        }
    }

    /// Reports the end of a stream that an earlier process opened, unless that is noted. To be called inside a runtime.
    pub(crate) fn watch_recovered(&self, record: &Arc<StreamRecord>) {
        self.watch(record, self.due_place(record));
    }

    /// Reports the end of a stream that is no longer readable.
    pub(crate) fn report_expired(&self, record: &StreamRecord, end: impl FnOnce() -> EndedStream) {
        if let Some(place) = self.due_place(record) {
            self.outbox.add(record, place, &end());
        }
    }

    /// The place of an event that is still to be recorded.
    fn due_place(&self, record: &StreamRecord) -> Option<WebhookPlace> {
        let has_webhook = record.meta().stream_options.webhook.is_some();
        let is_sent = record.noted_end().webhook || self.outbox.has(record.id());
        let owner = record.terms().owner;
        (has_webhook && !is_sent).then(|| self.outbox.reserve_always(owner))
    }

    async fn report(self, record: Arc<StreamRecord>, place: WebhookPlace) {
        record.wait_for_end().await;
        if record.is_left_to_others() {
            return;
        }
        let end = EndedStream::of_record(&record);
        let object = self.outbox.add(&record, place, &end);
        self.wait_stored(object).await;
        record.note_end(|noted| noted.webhook = true);
    }

    /// Waits until other gateways can find the event: the note could be stored before it, and would hide the end from the
    /// gateway that takes the stream over.
    async fn wait_stored(&self, object: Option<Weak<StoredBlob>>) {
        let Some(owners) = self.owners.get() else {
            return;
        };
        let Some(object) = object.and_then(|object| object.upgrade()) else {
            return;
        };
        object.written().await;
        let id = object.id();
        drop(object);
        owners.wait_stored(id).await;
    }
}

/// Version of records that are written now.
const EVENT_VERSION: u32 = 1;
/// Bytes of a record: the URL, and an event with an error message.
const EVENT_BYTES_MAX: usize = 64 << 10;
/// Prefix of ids of events.
pub(crate) const EVENT_PREFIX: &str = "evt_";

/// An event for a webhook: the description of an object of the journal, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventRecord {
    kind: DescriptionKind,
    version: u32,
    /// The stream that has ended, by which the event is named.
    #[serde(with = "hex_id")]
    pub(crate) stream: StreamId,
    owner: u64,
    /// The URL of the webhook.
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
#[derive(Serialize)]
struct EventObject<'a> {
    object: &'static str,
    /// Equal in every attempt.
    id: &'a str,
    /// `response.`, `job.` or `stream.` and the status.
    #[serde(rename = "type")]
    kind: &'a str,
    /// Seconds since the Unix epoch.
    created_at: i64,
    data: &'a EndedStream,
}

impl EventRecord {
    pub(crate) fn new(
        url: &str,
        (stream, owner): (StreamId, Owner),
        end: &EndedStream,
        now_unix_us: u64,
    ) -> Self {
        let event = format!("{}.{}", end.object, end.status);
        let body = EventObject {
            object: "event",
            id: &event_id(stream),
            kind: &event,
            created_at: end.ended_at,
            data: end,
        };
        Self {
            kind: DescriptionKind::WebhookDelivery,
            version: EVENT_VERSION,
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
        to_json::<Self>(self, EVENT_BYTES_MAX)
    }

    /// The event of a description.
    pub(crate) fn decode(description: &[u8]) -> Result<Self, DescriptionError> {
        let record: Self = from_json(description, EVENT_BYTES_MAX)?;
        if record.kind != DescriptionKind::WebhookDelivery || record.version > EVENT_VERSION {
            let found = format!("kind {}, version {}", record.kind.name(), record.version);
            return Err(DescriptionError::Invalid(found));
        }
        Ok(record)
    }

    /// Records the event in the journal, if there is one, and for other gateways, if there are any.
    pub(crate) fn store(
        &self,
        (journal, ids): (&JournalSlot, &IdGenerator),
        state: Vec<u8>,
    ) -> Option<Arc<StoredBlob>> {
        let id = u128::from_be_bytes(ids.next_random());
        let stored = journal
            .get()?
            .store_blob(id, self.encode().ok()?, (state, false))?;
        Some(Arc::new(stored))
    }
}

fn event_id(stream: StreamId) -> String {
    format!("{EVENT_PREFIX}{stream}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as version 1 has written it.
    const DELIVERY: &str = concat!(
        r#"{"kind":"webhook_delivery","version":1,"stream":"01010101010101010101010101010101","#,
        r#""owner":7,"url":"https://a.example/","event":"job.completed","object_id":"j","#,
        r#""body":"{}","created_unix_us":5}"#
    );

    #[test]
    fn recorded_delivery_is_read_and_written_byte_for_byte() {
        let record = EventRecord::decode(DELIVERY.as_bytes()).expect("a record");
        assert_eq!(record.url, "https://a.example/");
        assert_eq!(record.id(), "evt_01010101010101010101010101010101");
        assert_eq!(record.encode().expect("short"), DELIVERY.as_bytes());
    }

    #[test]
    fn records_of_other_kinds_and_later_versions_are_rejected() {
        let later = DELIVERY.replace("\"version\":1", "\"version\":2");
        let other = DELIVERY.replace("webhook_delivery", "stored_blob");
        for json in [later, other] {
            assert!(EventRecord::decode(json.as_bytes()).is_err(), "{json}");
        }
        for cut in 0..DELIVERY.len() {
            let cut = &DELIVERY.as_bytes()[..cut];
            assert!(EventRecord::decode(cut).is_err());
        }
    }
}
