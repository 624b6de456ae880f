//! The head of a step: the clock, live settings, the last step's times, new requests, updates in flight.

use super::{Scheduler, StepCounters};
use crate::inbox::{Inbox, InboxState};
use crate::sequence::Sequence;
use crate::{RequestId, RequestUpdate, Transition, UPDATES_MAX};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;
use stream::FailCode;

impl Scheduler {
    /// Starts a step: takes new requests in, frees the keys of ended sequences, finalizes times.
    pub(crate) fn begin_step(&mut self, now: Instant) -> InboxState {
        let step_ns = self.clock.advance_to(now);
        self.time_units(step_ns);
        self.apply_tuning();
        self.counters = StepCounters::default();
        self.timestamps
            .finalize(self.clock, &self.inbox.stats, &mut self.notifier);
        self.update_waits(step_ns);
        self.table.sweep();
        let (first_new, state) = self.queue.refill(&self.inbox);
        (first_new..self.queue.len()).for_each(|at| self.enqueue(at));
        state
    }

    /// Applies settings that were changed while the engine runs.
    fn apply_tuning(&mut self) {
        let tuning = self.inbox.tuning.get();
        self.priority.set_ageing(tuning.ageing);
        self.notifier.slow_consumer = tuning.slow_consumer;
        self.rows.step_time.set_target(tuning.step_target);
    }

    /// Moves the start of the wait of sequences that got a token, and adds to the time of stalls.
    fn update_waits(&mut self, step_ns: u64) {
        let now_ns = self.clock.now_ns();
        for at in 0..self.table.order_len() {
            let key = self.table.key_at(at);
            let Some((sequence, request)) = self.table.pair_mut(key) else {
                continue;
            };
            if std::mem::take(&mut sequence.got_token) {
                sequence.waiting_since_ns = now_ns;
            }
            if sequence.is_stalled() {
                request.progress.extend_stall(step_ns, now_ns);
                let total = &self.inbox.stats.reader_stall_ns;
                total.fetch_add(step_ns, Ordering::Relaxed);
            }
        }
    }

    /// Sets the arrival time and the fair-share counter of a new request.
    fn enqueue(&mut self, at: usize) {
        let now_ns = self.clock.now_ns();
        let Some(submitted) = self.queue.get_mut(at) else {
            return;
        };
        let request = &mut submitted.state;
        let since = request.since;
        let since_ns = since.map_or(now_ns, |since| self.clock.since_epoch_ns(since));
        if let Some(places) = &mut request.permits {
            places.wake_by(Waker::from(Arc::clone(&self.inbox)));
        }
        request.arrived_ns = since_ns.min(now_ns);
        request.clock_start_ns = request.arrived_ns;
        for sequence in &mut submitted.sequences {
            sequence.waiting_since_ns = now_ns;
        }
        let fair_shares = &mut self.priority.fair_shares;
        request.fair_share = fair_shares.open(request.account, request.fair_share.class());
        fair_shares.begin_demand(request.fair_share);
        let (id, progress) = (request.id, Arc::clone(&request.progress));
        let (stats, clock) = (&self.inbox.stats, self.clock);
        self.notifier
            .notify(stats, clock, id, &progress, Transition::Queued);
    }
}

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
