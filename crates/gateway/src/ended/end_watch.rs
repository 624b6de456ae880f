//! A task for each stream with a webhook that waits for the end and records the event.
//!
//! The event is an object of the journal. Behind it the stream's records note that the event was recorded, so a later
//! process records the events of ends without this note. A process that dies between the two finds the object by the
//! stream's id.

use super::EndedStream;
use crate::owners_slot::OwnersSlot;
use crate::streams::{StoredBlob, StreamRecord};
use crate::webhooks::{Outbox, WebhookPlace};
use std::sync::{Arc, Weak};

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
