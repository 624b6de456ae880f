//! Parking and resuming: pauses, credit, and the sequences that hold a permit (see [`crate::terms`]).

use super::Scheduler;
use crate::inbox::InboxState;
use crate::request_state::{ObservedState, RequestState};
use crate::sequence::{ParkCause, Sequence, SequenceState};
use crate::stats::count;
use crate::terms::{PERMIT_KEPT, PermitState};
use crate::{ParkReason, Phase, SequencePermits, Transition};
use std::panic::{AssertUnwindSafe, catch_unwind};
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
        let fair_shares = &mut self.priority.fair_shares;
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
        let fair_shares = &mut self.priority.fair_shares;
        fair_shares.begin_demand(request.fair_share);
    }

    fn end_demand_of(&mut self, key: usize) {
        if let Some((_, request)) = self.table.pair(key) {
            let fair_shares = &mut self.priority.fair_shares;
            fair_shares.end_demand(request.fair_share);
        }
    }
}

impl Scheduler {
    /// Queued requests take permits, or stop waiting for one while they are paused. The queue clock of a
    /// request starts when the request gets a permit.
    pub(super) fn update_queued_permits(&mut self) {
        for at in 0..self.queue.len() {
            let Some(submitted) = self.queue.get_mut(at) else {
                continue;
            };
            let request = &mut submitted.state;
            let leader = &mut submitted.sequences[0];
            let before = leader.permit;
            if request.paused {
                request.release_permit(leader);
            } else {
                request.take_permit(leader);
            }
            if before == PermitState::Wanted && leader.permit == PermitState::Held {
                request.clock_start_ns = self.clock.now_ns();
            }
        }
    }

    /// Returns recalled permits, of each request the youngest choice's first.
    pub(super) fn return_recalled_permits(&mut self) {
        for at in (0..self.table.order_len()).rev() {
            let Some((sequence, request)) = self.table.pair_mut(self.table.key_at(at)) else {
                continue;
            };
            if request.open_choices > 1
                && sequence.permit == PermitState::Held
                && request.is_permit_recalled()
            {
                request.release_permit(sequence);
            }
        }
    }

    /// Takes or returns a sequence's permit. Returns the reason to park the sequence, if there is one.
    pub(super) fn update_permit(&mut self, key: usize) -> Option<ParkCause> {
        let clock = self.clock;
        let (sequence, request) = self.table.pair_mut(key)?;
        let cause = sequence.cause_to_park(request);
        match cause {
            None => request.take_permit(sequence),
            Some(ParkCause::Credit) if sequence.permit == PermitState::Held => {
                let is_long = clock.has_passed(sequence.parked_since_ns, Some(PERMIT_KEPT));
                if sequence.is_stalled() && is_long {
                    request.release_permit(sequence);
                }
            }
            Some(_) => request.release_permit(sequence),
        }
        let without_permit = sequence.permit != PermitState::Held;
        cause.or_else(|| without_permit.then_some(ParkCause::NoPermit))
    }
}

impl RequestState {
    /// Takes a permit for this sequence of the request, or requests one.
    pub(crate) fn take_permit(&mut self, sequence: &mut Sequence) {
        let permit = sequence.permit;
        if permit == PermitState::Held {
            return;
        }
        let taken = self.with_permits(|permits| {
            if permit == PermitState::None {
                permits.request();
            }
            permits.take()
        });
        sequence.permit = match taken {
            None | Some(true) => PermitState::Held,
            Some(false) => PermitState::Wanted,
        };
    }

    /// Returns the permit of this sequence, or withdraws the sequence's request for a permit.
    pub(crate) fn release_permit(&mut self, sequence: &mut Sequence) {
        let permit = sequence.permit;
        let released = self.with_permits(|permits| match permit {
            PermitState::None => {}
            PermitState::Wanted => permits.withdraw(),
            PermitState::Held => permits.give_back(),
        });
        if released.is_some() {
            sequence.permit = PermitState::None;
        }
    }

    /// Whether the caller recalls a permit.
    pub(crate) fn is_permit_recalled(&mut self) -> bool {
        self.with_permits(|permits| permits.is_recalled()) == Some(true)
    }

    /// Calls the caller's permits. `None`: the sequences need none, or no longer need any because a call
    /// panicked.
    fn with_permits<T>(&mut self, act: impl FnOnce(&mut dyn SequencePermits) -> T) -> Option<T> {
        let permits = &mut **self.permits.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| act(permits))) {
            Ok(done) => Some(done),
            Err(_) => {
                let permits = AssertUnwindSafe(self.permits.take());
                let _ = catch_unwind(move || drop(permits));
                None
            }
        }
    }
}
