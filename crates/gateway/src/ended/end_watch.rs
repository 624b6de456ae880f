//! A task for each resumable stream that waits for the end and reports it.
//!
//! A report is an object of the journal. Behind it the stream's records note that the end was reported, so a later
//! process reports the ends that have no note. A process that dies between the two finds the object by the stream's id.

use super::EndedStream;
use crate::durability::NotedEnd;
use crate::response_record;
use crate::streams::StreamRecord;
use crate::webhooks::{Outbox, WebhookPlace};
use std::sync::Arc;

/// Receivers of reports.
#[derive(Clone)]
pub struct EndReports {
    outbox: Arc<Outbox>,
}

impl EndReports {
    /// Reports to these receivers.
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox }
    }

    /// Reports the end of a stream that was just opened. To be called inside a runtime.
    pub(crate) fn watch(&self, record: &Arc<StreamRecord>, place: Option<WebhookPlace>) {
        let reports = self.clone();
        let record = Arc::clone(record);
        if place.is_some() {
            tokio::spawn(reports.report(record, place));
        }
    }

    /// Reports the end of a stream that an earlier process opened, unless that is noted. To be called inside a runtime.
    pub(crate) fn watch_recovered(&self, record: &Arc<StreamRecord>, noted: NotedEnd) {
        let has_webhook = record.meta().stream_options.webhook.is_some();
        let is_reported = noted.webhook || self.outbox.has(record.id());
        if has_webhook && !is_reported {
            self.watch(
                record,
                Some(self.outbox.reserve_always(record.terms().owner)),
            );
        }
    }

    /// Reports the end of a stream that is no longer readable.
    pub(crate) fn report_expired(
        &self,
        record: &StreamRecord,
        noted: NotedEnd,
        end: impl FnOnce() -> EndedStream,
    ) {
        let has_webhook = record.meta().stream_options.webhook.is_some();
        if !has_webhook || noted.webhook || self.outbox.has(record.id()) {
            return;
        }
        let place = self.outbox.reserve_always(record.terms().owner);
        self.outbox.add(record, place, &end());
    }

    async fn report(self, record: Arc<StreamRecord>, place: Option<WebhookPlace>) {
        response_record::wait_for_end(&record).await;
        let durable = record.durable();
        if durable.is_some_and(|durable| record.rejection().is_some() && durable.is_left_to_next())
        {
            // The next process starts the stream.
            return;
        }
        let Some(place) = place else { return };
        self.outbox
            .add(&record, place, &EndedStream::of_record(&record));
        if let Some(durable) = durable {
            durable.note_end(record.rejection(), NotedEnd { webhook: true });
        }
    }
}
