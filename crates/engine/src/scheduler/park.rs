//! Parking and resuming: pauses, credit and permits.

use super::Scheduler;
use crate::inbox::InboxState;
use crate::request_state::ObservedState;
use crate::sequence::{ParkCause, SequenceState};
use crate::stats::count;
use crate::{ParkReason, Phase, Transition};
use std::sync::Arc;

impl Scheduler {
    /// Applies pause and resume calls. Once every handle is dropped without a drain deadline, no resume can
    /// come any more, so nothing stays paused.
    pub(super) fn apply_pauses(&mut self, state: InboxState) {
        let heeded = !state.closed || state.drain_deadline.is_some();
        for at in 0..self.queue.len() {
            self.apply_queued_pause(at, heeded);
        }
        let now_ns = self.clock.now_ns();
        for at in 0..self.table.order_len() {
            if let Some((_, request)) = self.table.pair_mut(self.table.key_at(at)) {
                let paused = heeded && self.inbox.is_paused(request.id, request.slot);
                request.set_paused(paused, now_ns);
            }
        }
    }

    fn apply_queued_pause(&mut self, at: usize, heeded: bool) {
        let Some(submitted) = self.queue.get_mut(at) else {
            return;
        };
        let request = &mut submitted.state;
        let paused = heeded && self.inbox.is_paused(request.id, request.slot);
        if !request.set_paused(paused, self.clock.now_ns()) {
            return;
        }
        let fair_shares = self.priority.fair_shares_mut();
        let (phase, observed, transition) = if paused {
            fair_shares.end_demand(request.fair_share);
            let parked = Transition::Parked {
                reason: ParkReason::Paused,
            };
            (Phase::Paused, ObservedState::Paused, parked)
        } else {
            fair_shares.begin_demand(request.fair_share);
            let resumed = Transition::Resumed;
            (Phase::Queued, ObservedState::Running, resumed)
        };
        request.progress.set_phase(phase);
        request.observed = observed;
        let (id, progress) = (request.id, Arc::clone(&request.progress));
        let (stats, clock) = (&self.inbox.stats, self.clock);
        self.notifier
            .notify(stats, clock, id, &progress, transition);
    }

    /// Parks sequences without credit, paused or without a permit, and resumes the others.
    pub(super) fn park_and_resume(&mut self) {
        self.update_queued_permits();
        self.return_recalled_permits();
        for at in 0..self.table.order_len() {
            let key = self.table.key_at(at);
            let cause = self.update_permit(key);
            let Some(sequence) = self.table.get_mut(key) else {
                continue;
            };
            sequence.rows = 0;
            match (sequence.state, cause) {
                (SequenceState::Active | SequenceState::Waiting, Some(cause)) => {
                    self.park(key, cause);
                    self.end_demand_of(key);
                }
                (SequenceState::Parked, Some(cause)) if cause != sequence.park_cause => {
                    self.park(key, cause);
                }
                (SequenceState::Parked, None) => self.resume(key),
                _ => {}
            }
        }
    }

    fn park(&mut self, key: usize, cause: ParkCause) {
        let now_ns = self.clock.now_ns();
        let Some((sequence, request)) = self.table.pair_mut(key) else {
            return;
        };
        let was_stalled = sequence.is_stalled();
        sequence.state = SequenceState::Parked;
        sequence.park_cause = cause;
        sequence.parked_since_ns = now_ns;
        sequence.resume_due |= cause != ParkCause::NoPermit;
        let (stats, progress) = (&self.inbox.stats, &request.progress);
        match cause {
            ParkCause::Credit => {
                count(&stats.parks, 1);
                progress.begin_stall(now_ns);
            }
            ParkCause::Paused => {
                count(&stats.pauses, 1);
                progress.add_pause();
            }
            ParkCause::NoPermit => {}
        }
        if was_stalled {
            progress.end_stall();
        }
    }

    fn resume(&mut self, key: usize) {
        let Some((sequence, request)) = self.table.pair_mut(key) else {
            return;
        };
        let was_stalled = sequence.is_stalled();
        if std::mem::take(&mut sequence.resume_due) {
            request.progress.add_resume();
            count(&self.inbox.stats.resumes, 1);
        }
        if was_stalled {
            request.progress.end_stall();
        }
        sequence.state = if sequence.pages.is_empty() {
            SequenceState::Waiting
        } else {
            SequenceState::Active
        };
        sequence.waiting_since_ns = self.clock.now_ns();
        let fair_shares = self.priority.fair_shares_mut();
        fair_shares.begin_demand(request.fair_share);
    }

    fn end_demand_of(&mut self, key: usize) {
        if let Some((_, request)) = self.table.pair(key) {
            let fair_shares = self.priority.fair_shares_mut();
            fair_shares.end_demand(request.fair_share);
        }
    }
}
