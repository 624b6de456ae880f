//! The head of a step: the clock, live settings, the last step's times, new requests.

use super::{Scheduler, StepCounters};
use crate::Transition;
use crate::inbox::InboxState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;

impl Scheduler {
    /// Starts a step: takes new requests in, frees the keys of ended sequences, finalizes times.
    pub(crate) fn begin_step(&mut self, now: Instant) -> InboxState {
        let step_ns = self.clock.advance_to(now);
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
        self.notifier.set_slow_consumer(tuning.slow_consumer);
        self.rows.set_step_target(tuning.step_target);
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
        let fair_shares = self.priority.fair_shares_mut();
        request.fair_share = fair_shares.open(request.account, request.fair_share.class());
        fair_shares.begin_demand(request.fair_share);
        let (id, progress) = (request.id, Arc::clone(&request.progress));
        let (stats, clock) = (&self.inbox.stats, self.clock);
        self.notifier
            .notify(stats, clock, id, &progress, Transition::Queued);
    }
}
