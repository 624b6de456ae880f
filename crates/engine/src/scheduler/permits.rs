//! Which sequences hold a permit; see [`crate::sequence_permits`].

use super::Scheduler;
use crate::SequencePermits;
use crate::request_state::RequestState;
use crate::sequence::{ParkCause, Sequence};
use crate::sequence_permits::{PERMIT_KEPT, PermitState};
use std::panic::{AssertUnwindSafe, catch_unwind};

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
