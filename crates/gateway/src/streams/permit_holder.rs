//! The admission permit of a stream while the engine works for it.
//!
//! Each request of the stream brings a sequence permit to the engine, which drops that permit when the request's
//! pages are free. The admission permit is released with the last sequence permit, whether the response is read or
//! not, and however the generation ended: complete, canceled, failed, or because the engine ended. Before that the
//! engine takes and returns slots through the sequence permits, one slot for each choice that may run.

use super::stream_record::StreamRecord;
use super::undelivered::UndeliveredStreams;
use crate::admission::Permit;
use engine::{Progress, SequencePermits};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

/// The admission permit of a stream, shared by the stream's sequence permits.
pub(crate) struct PermitHolder {
    permit: Permit,
    record: Weak<StreamRecord>,
    undelivered: Arc<UndeliveredStreams>,
}

impl PermitHolder {
    /// A holder for a stream that is about to be submitted.
    pub(crate) fn new(
        permit: Permit,
        record: &Arc<StreamRecord>,
        undelivered: &Arc<UndeliveredStreams>,
    ) -> Self {
        Self {
            permit,
            record: Arc::downgrade(record),
            undelivered: Arc::clone(undelivered),
        }
    }

    /// The admission permit.
    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// The sequence permit of one request. Times of `progress` count from `epoch`.
    pub(crate) fn sequence_permit(
        self: &Arc<Self>,
        progress: &Arc<Progress>,
        epoch: Instant,
    ) -> Box<dyn SequencePermits> {
        Box::new(SequencePermit {
            work: Arc::clone(self),
            progress: Arc::clone(progress),
            epoch,
        })
    }
}

impl Drop for PermitHolder {
    /// A resumable stream is read by the detached driver; any other stream is undelivered until the client has read all
    /// output.
    fn drop(&mut self) {
        if let Some(record) = self.record.upgrade()
            && record.started().is_some()
            && !record.terms().resumable
        {
            self.undelivered.add_stream(&record);
        }
    }
}

struct SequencePermit {
    work: Arc<PermitHolder>,
    progress: Arc<Progress>,
    epoch: Instant,
}

impl SequencePermits for SequencePermit {
    fn wake_by(&mut self, waker: Waker) {
        self.work.permit.wake_on_slot(waker);
    }

    fn take(&mut self) -> bool {
        self.work.permit.take_slot()
    }

    fn request(&mut self) {
        self.work.permit.request_slot();
    }

    fn is_recalled(&mut self) -> bool {
        self.work.permit.is_recalled()
    }

    fn withdraw(&mut self) {
        self.work.permit.cancel_slot_request();
    }

    fn give_back(&mut self) {
        self.work.permit.return_slot(false);
    }
}

impl Drop for SequencePermit {
    /// Reports the time of the first token to admission before the permit is released: a short response may end before
    /// the first token is read.
    fn drop(&mut self) {
        let first_ns = self.progress.first_token_ns();
        if first_ns > 0 {
            let at = self.epoch + Duration::from_nanos(first_ns);
            self.work.permit.latency_reporter().first_token(at);
        }
    }
}
