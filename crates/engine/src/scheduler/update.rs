//! Updates in flight, applied at the head of a step.

use super::Scheduler;
use crate::inbox::Inbox;
use crate::sequence::Sequence;
use crate::{RequestId, RequestUpdate, UPDATES_MAX};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use stream::FailCode;

impl Scheduler {
    /// Applies the updates of requests whose choices all have a first token. Updates of younger requests wait; those of
    /// ended requests are dropped.
    pub(super) fn apply_updates(&mut self) {
        let mut updates = self.updates.take_all(&self.inbox);
        updates.retain(|(id, update)| !self.apply_update(*id, update));
        self.updates.put_back(updates);
    }

    /// Returns false if the update has to wait.
    fn apply_update(&mut self, id: RequestId, update: &RequestUpdate) -> bool {
        let slot = self.inbox.slot(id);
        let request = self.table.request(slot).filter(|r| r.id == id);
        if request.is_none() {
            return !self.queue.iter().any(|submitted| submitted.state.id == id);
        }
        let is_new = |(_, s): (usize, &Sequence)| s.slot == slot && s.generated() == 0;
        if self.table.live().any(is_new) {
            return false;
        }
        let in_flight = |(_, s): (usize, &Sequence)| s.slot == slot && s.in_flight.is_some();
        let is_in_flight = self.table.live().any(in_flight);
        let Some(request) = self.table.request_mut(slot) else {
            return true;
        };
        request.update_waits = is_in_flight;
        if is_in_flight {
            return false;
        }
        update.change(&mut request.sampling);
        let alternatives = request.sampling.top_logprobs as usize;
        let progress = Arc::clone(&request.progress);
        progress.begin_update();
        for at in 0..self.table.order_len() {
            let key = self.table.key_at(at);
            if self.table.belongs_to(key, slot) {
                self.inject(key, &update.inject, alternatives);
            }
        }
        progress.finish_update();
        true
    }

    /// Appends tokens to a sequence. Many positions may then be uncomputed and need pages, so the sequence starts again
    /// from its indexed pages, as after a preemption.
    fn inject(&mut self, key: usize, ids: &[u32], alternatives: usize) {
        let Some(sequence) = self.table.get_mut(key).filter(|_| !ids.is_empty()) else {
            return;
        };
        let vocab = self.inbox.dims.vocab;
        let inject = AssertUnwindSafe(|| sequence.inject(ids, vocab, alternatives));
        match catch_unwind(inject) {
            Ok((0, None)) => {}
            Ok((_, Some(end))) => self.end(key, end),
            Ok((_, None)) => {
                sequence.drafts.clear();
                self.preempt(key);
            }
            Err(_) => self.fail(key, FailCode::Panic),
        }
    }
}

/// Updates that were taken from the inbox and are not applied.
pub(super) struct UpdateQueue {
    updates: Vec<(RequestId, RequestUpdate)>,
}

impl UpdateQueue {
    pub(super) fn new() -> Self {
        Self {
            updates: Vec::with_capacity(UPDATES_MAX),
        }
    }

    /// Moves new updates in and takes all out, in order of arrival.
    pub(super) fn take_all(&mut self, inbox: &Inbox) -> Vec<(RequestId, RequestUpdate)> {
        inbox.take_updates(&mut self.updates);
        std::mem::take(&mut self.updates)
    }

    /// Returns the updates that have to wait longer.
    pub(super) fn put_back(&mut self, updates: Vec<(RequestId, RequestUpdate)>) {
        debug_assert!(self.updates.is_empty());
        self.updates = updates;
    }
}
