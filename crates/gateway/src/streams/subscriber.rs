//! Readers attached to a stream, from before the first read until they leave, and what is noted of the end: whether it was
//! read.

use super::DurableStream;
use super::stream_credit::SubscriberId;
use super::stream_record::StreamRecord;
use crate::records::NotedEnd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::clock;

/// A reader attached to a stream; the drop detaches the reader.
pub struct Subscriber {
    record: Arc<StreamRecord>,
    id: SubscriberId,
}

impl Subscriber {
    /// The subscriber of the client that opens the stream. The subscriber owns the credit from now on, also before
    /// the start: a stream without a credit owner gets `detached_tokens`.
    pub fn opening(record: &Arc<StreamRecord>) -> Self {
        let subscriber = Self::joining(record);
        subscriber.take_credit();
        subscriber
    }

    /// A later subscriber, which becomes the credit owner by reading while there is no owner.
    pub fn joining(record: &Arc<StreamRecord>) -> Self {
        record.attendance().enter();
        Self {
            record: Arc::clone(record),
            id: record.credit_owner().next_id(),
        }
    }

    /// The record of the stream.
    pub(crate) fn record(&self) -> &Arc<StreamRecord> {
        &self.record
    }

    /// Takes the credit from the current owner.
    pub(crate) fn take_credit(&self) {
        self.record.credit_owner().take_credit(self.id);
    }

    /// Whether this subscriber owns the credit; without an owner, the subscriber becomes the owner.
    pub(crate) fn owns_credit(&self) -> bool {
        self.record.credit_owner().owns_credit(self.id)
    }
}

impl Drop for Subscriber {
    /// If this subscriber owns the credit, gives the credit up; the stream then gets `detached_tokens`.
    fn drop(&mut self) {
        if self.record.credit_owner().detach_subscriber(self.id) {
            self.record.detach_client();
        }
        self.record.attendance().leave();
    }
}

/// The readers of one stream, and the notes on its end.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    present: AtomicUsize,
    noted: Mutex<NotedEnd>,
}

impl Attendance {
    pub(crate) fn enter(&self) {
        self.present.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.present.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_empty(&self) -> bool {
        self.present.load(Ordering::SeqCst) == 0
    }

    fn noted(&self) -> MutexGuard<'_, NotedEnd> {
        // Nothing panics half-way through a change.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamRecord {
    /// Whether the stream has ended, its readers have left, and none of them has the end. `false` once a client has
    /// acknowledged the end.
    pub fn is_unread(&self) -> bool {
        // In this order: the last reader notes that it has the end before it leaves.
        let is_left = self.is_kept() && self.is_over() && self.attendance().is_empty();
        is_left && !self.noted_end().read
    }

    /// A reader has the end (to be called while that reader is present), or a client has acknowledged it. Recorded for a
    /// later process, if the stream is durable.
    pub fn note_end_read(&self) {
        self.note_end(|noted| noted.read = true);
    }

    /// Changes the notes on the end, and records them.
    pub(crate) fn note_end(&self, change: impl FnOnce(&mut NotedEnd)) {
        if !self.is_kept() || self.is_left_to_others() {
            return;
        }
        let mut noted = self.attendance().noted();
        let before = *noted;
        change(&mut noted);
        // Under the lock: the last record has all notes.
        if let Some(durable) = self.durable().filter(|_| *noted != before) {
            durable.note_end(self.rejection(), *noted);
        }
    }

    /// The notes on the end.
    pub(crate) fn noted_end(&self) -> NotedEnd {
        *self.attendance().noted()
    }

    /// The notes of an earlier process.
    pub(crate) fn restore_noted_end(&self, noted: NotedEnd) {
        *self.attendance().noted() = noted;
    }

    /// Whether another process ends the stream: another gateway, or the next process of this one, which starts what has not
    /// started yet.
    pub(crate) fn is_left_to_others(&self) -> bool {
        let is_left = || {
            let durable = self.durable();
            durable.is_some_and(DurableStream::is_left_to_next)
        };
        self.has_left() || (self.rejection().is_some() && is_left())
    }

    /// Wall time of the end, in microseconds since the Unix epoch: the place of an ended stream in the order of ends.
    pub(crate) fn ended_unix_us(&self) -> u64 {
        self.source().ended_time().recorded_or(clock::unix_us())
    }
}

/// The end of a stream on the way to a reader, who is present until the drop.
pub struct EndReceipt(Arc<StreamRecord>);

impl EndReceipt {
    pub(crate) fn new(record: &Arc<StreamRecord>) -> Self {
        record.attendance().enter();
        Self(Arc::clone(record))
    }

    /// The reader has the end.
    pub fn confirm(self) {
        self.0.note_end_read();
    }
}

impl Drop for EndReceipt {
    fn drop(&mut self) {
        self.0.attendance().leave();
    }
}

/// Guard of a detachable stream's client: the drop of the guard cancels the stream, unless the client's credit was
/// revoked before. Such a stream continues as a resumable stream.
pub(crate) struct CancelOnDrop(Arc<StreamRecord>);

impl CancelOnDrop {
    /// A guard for this stream.
    pub(crate) fn new(record: &Arc<StreamRecord>) -> Self {
        Self(Arc::clone(record))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.0.credit_owner().was_revoked() && !self.0.is_over() {
            self.0.cancel();
        }
    }
}
