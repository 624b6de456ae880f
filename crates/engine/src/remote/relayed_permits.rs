//! Permits of a relayed request's choices; see [`crate::sequence_permits`].
//!
//! The engine of the other process parks a choice whose reader has used up the credit. The choice then gives its permit
//! back as it does on an engine of this process, and gets no further credit before it has a permit again.

use super::RelayedRequest;
use crate::Phase;
use crate::request_state::RequestState;
use crate::sequence::{ParkCause, Sequence, SequenceState};
use crate::sequence_permits::{PERMIT_KEPT, PermitState};
use crate::step_clock::StepClock;
use std::time::Instant;

impl RelayedRequest {
    /// Takes permits for open choices, or gives them back while the request is paused or a reader is slow. Returns whether
    /// a choice may run.
    pub fn update_permits(&mut self, now: Instant) -> bool {
        let paused = self.is_paused();
        let clock = self.clock(now);
        if self.state.set_paused(paused, clock.now_ns()) {
            let phase = match (paused, self.is_queued, self.state.has_token) {
                (true, ..) => Phase::Paused,
                (_, true, _) => Phase::Queued,
                (.., false) => Phase::Prefilling,
                (.., true) => Phase::Running,
            };
            self.set_phase(phase, now);
        }
        for sequence in self.choices.iter_mut().flatten() {
            let before = sequence.permit;
            match paused {
                true => self.state.release_permit(sequence),
                false => update_permit(&mut self.state, sequence, clock),
            }
            if before == PermitState::Wanted && sequence.permit == PermitState::Held {
                self.state.clock_start_ns = clock.now_ns();
            }
        }
        let mut open = self.choices.iter().flatten();
        open.any(|sequence| sequence.permit == PermitState::Held)
    }

    /// Whether the engine may get credit for a choice: not while a choice that waited for its reader waits for a permit.
    pub fn may_credit(&self, choice: usize) -> bool {
        let sequence = self.choices.get(choice).and_then(Option::as_ref);
        sequence
            .is_some_and(|sequence| !sequence.is_stalled() || sequence.permit == PermitState::Held)
    }
}

fn update_permit(request: &mut RequestState, sequence: &mut Sequence, clock: StepClock) {
    if !sequence.is_out_of_credit(request.credit_window) {
        request.take_permit(sequence);
        if sequence.permit == PermitState::Held {
            sequence.state = SequenceState::Active;
        }
        return;
    }
    if !sequence.is_stalled() {
        sequence.state = SequenceState::Parked;
        sequence.park_cause = ParkCause::Credit;
        sequence.parked_since_ns = clock.now_ns();
    }
    if clock.has_passed(sequence.parked_since_ns, Some(PERMIT_KEPT)) {
        request.release_permit(sequence);
    }
}
