//! A task for each resumable stream that waits for the end and reports it.
//!
//! A report is an object of the journal. Behind it the stream's records note that the end was reported, so a later
//! process reports the ends that have no note. A process that dies between the two finds the object by the stream's id.
//!
//! A webhook gets every end; the mailbox gets an end that no reader was there to read.

use super::EndedStream;
use crate::durability::{NotedEnd, StoredBlob};
use crate::mailbox::Mailboxes;
use crate::owners_slot::OwnersSlot;
use crate::streams::StreamRecord;
use crate::webhooks::{Outbox, WebhookPlace};
use std::sync::{Arc, Weak};

/// Receivers of reports.
#[derive(Clone)]
pub struct EndReports {
    outbox: Arc<Outbox>,
    mailboxes: Arc<Mailboxes>,
    owners: Arc<OwnersSlot>,
}

/// Reports that are due at the end of a stream.
struct DueReports {
    place: Option<WebhookPlace>,
    is_for_mailbox: bool,
    /// Reports that were made.
    noted: NotedEnd,
}

impl EndReports {
    /// Reports to these receivers.
    pub(crate) fn new(
        outbox: Arc<Outbox>,
        mailboxes: Arc<Mailboxes>,
        owners: Arc<OwnersSlot>,
    ) -> Self {
        Self {
            outbox,
            mailboxes,
            owners,
        }
    }

    /// Reports the end of a stream that was just opened. To be called inside a runtime.
    pub(crate) fn watch(&self, record: &Arc<StreamRecord>, place: Option<WebhookPlace>) {
        let due = DueReports {
            place,
            is_for_mailbox: record.terms().resumable && self.mailboxes.is_on(),
            noted: NotedEnd::default(),
        };
        self.watch_due(record, due);
    }

    fn watch_due(&self, record: &Arc<StreamRecord>, due: DueReports) {
        let reports = self.clone();
        let record = Arc::clone(record);
        if due.place.is_some() || due.is_for_mailbox {
            tokio::spawn(reports.report(record, due));
        }
    }

    /// Reports the end of a stream that an earlier process opened, unless that is noted. To be called inside a runtime.
    pub(crate) fn watch_recovered(&self, record: &Arc<StreamRecord>, noted: NotedEnd) {
        let due = self.due_reports(record, noted);
        self.watch_due(record, due);
    }

    /// Reports the end of a stream that is no longer readable.
    pub(crate) fn report_expired(
        &self,
        record: &StreamRecord,
        noted: NotedEnd,
        end: impl FnOnce() -> EndedStream,
    ) {
        let due = self.due_reports(record, noted);
        if due.place.is_none() && !due.is_for_mailbox {
            return;
        }
        let end = end();
        if let Some(place) = due.place {
            self.outbox.add(record, place, &end);
        }
        if due.is_for_mailbox {
            self.mailboxes.add(record, &end);
        }
    }

    fn due_reports(&self, record: &StreamRecord, noted: NotedEnd) -> DueReports {
        let (id, owner) = (record.id(), record.terms().owner);
        let has_webhook = record.meta().stream_options.webhook.is_some();
        let is_sent = noted.webhook || self.outbox.has(id);
        let is_mailed = noted.mailbox || self.mailboxes.has(owner, id);
        DueReports {
            place: (has_webhook && !is_sent).then(|| self.outbox.reserve_always(owner)),
            is_for_mailbox: record.terms().resumable && self.mailboxes.is_on() && !is_mailed,
            noted,
        }
    }

    async fn report(self, record: Arc<StreamRecord>, due: DueReports) {
        record.wait_for_end().await;
        if record.is_moved() {
            // The next owner reports the end.
            return;
        }
        let durable = record.durable();
        if durable.is_some_and(|durable| record.rejection().is_some() && durable.is_left_to_next())
        {
            // The next process starts the stream.
            return;
        }
        let end = EndedStream::of_record(&record);
        let mut noted = due.noted;
        let note = |noted| {
            if let Some(durable) = durable {
                durable.note_end(record.rejection(), noted);
            }
        };
        if let Some(place) = due.place {
            let object = self.outbox.add(&record, place, &end);
            self.wait_stored(object).await;
            noted.webhook = true;
            note(noted);
        }
        if due.is_for_mailbox {
            if !record.attendance().is_end_read().await {
                let object = self.mailboxes.add(&record, &end);
                self.wait_stored(object).await;
            }
            noted.mailbox = true;
            note(noted);
        }
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
