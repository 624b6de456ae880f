//! A reader attached to a stream, from before the first read until the reader leaves.

use super::credit_owner::SubscriberId;
use super::stream_record::StreamRecord;
use std::sync::Arc;

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
