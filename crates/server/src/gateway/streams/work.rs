//! What the engine holds for a stream while it works for it: the permit.
//!
//! Each of a stream's requests brings a part to the engine, which drops it when that request's pages are
//! free. With the last part the permit goes back, whether anybody reads the answer or not, and however it
//! ended: cancelled, failed, or with the engine itself. Before that the engine takes and gives back places through
//! it, one for each choice that may run ([`engine::SequencePermits`]).

use super::entry::Entry;
use super::unread::Unread;
use crate::gateway::admission::Permit;
use engine::{Progress, SequencePermits};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

/// A stream's permit, shared by its parts.
pub(crate) struct Work {
    permit: Permit,
    entry: Weak<Entry>,
    unread: Arc<Unread>,
}

impl Work {
    /// Of a stream that is about to be submitted.
    pub(crate) fn new(permit: Permit, entry: &Arc<Entry>, unread: &Arc<Unread>) -> Self {
        Self {
            permit,
            entry: Arc::downgrade(entry),
            unread: Arc::clone(unread),
        }
    }

    /// The right to run it.
    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// For one of its requests. `epoch` is what its progress counts from.
    pub(crate) fn part(
        self: &Arc<Self>,
        progress: &Arc<Progress>,
        epoch: Instant,
    ) -> Box<dyn SequencePermits> {
        Box::new(Part {
            work: Arc::clone(self),
            progress: Arc::clone(progress),
            epoch,
        })
    }
}

impl Drop for Work {
    /// A resumable stream has a keeper that reads it. Of any other somebody must.
    fn drop(&mut self) {
        if let Some(entry) = self.entry.upgrade()
            && entry.started().is_some()
            && !entry.opening().resumable
        {
            self.unread.add(&entry);
        }
    }
}

struct Part {
    work: Arc<Work>,
    progress: Arc<Progress>,
    epoch: Instant,
}

impl SequencePermits for Part {
    fn wake_by(&mut self, waker: Waker) {
        self.work.permit.wake_by(waker);
    }

    fn take(&mut self) -> bool {
        self.work.permit.take()
    }

    fn request(&mut self) {
        self.work.permit.want();
    }

    fn is_recalled(&mut self) -> bool {
        self.work.permit.is_recalled()
    }

    fn withdraw(&mut self) {
        self.work.permit.want_not();
    }

    fn give_back(&mut self) {
        self.work.permit.give_back(false);
    }
}

impl Drop for Part {
    /// What the permit was good for is told before it goes back: a short answer may be over before
    /// anybody read its first token.
    fn drop(&mut self) {
        let first_ns = self.progress.first_token_ns();
        if first_ns > 0 {
            let at = self.epoch + Duration::from_nanos(first_ns);
            self.work.permit.pulse().first_token(at);
        }
    }
}
