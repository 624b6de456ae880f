//! Permits of a relayed request's choices; see [`crate::terms`].
//!
//! The engine of the other process parks a choice whose reader has used up the credit. Here such a choice gives the permit
//! back as on an engine of this process: after [`PERMIT_KEPT`], so that readers that rest keep no other request out. The
//! choice gets no further credit before it has a permit again. A permit that the caller recalls is given back as well: the
//! youngest choice with one computes what credit it has, and then waits. Without a credit window nothing would stop the
//! choice, and its permit stays.
//!
//! A request that no engine has, and whose choices all wait for their readers, is not placed: nothing is to be computed. The
//! reader clock goes on meanwhile, since there is no engine to apply it.

use super::RelayedRequest;
use crate::request_state::RequestState;
use crate::sequence::{ParkCause, Sequence, SequenceState};
use crate::step_time::StepClock;
use crate::terms::{PERMIT_KEPT, PermitState};
use crate::{ParkReason, Phase, Policy, Transition};
use std::time::Instant;
use stream::{Clock, End};

impl RelayedRequest {
    /// Takes permits for open choices, or gives them back while the request is paused or a reader rests. Returns whether
    /// an open choice has a permit: the request may run.
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
        self.return_recalled_permits();
        let given = self.given.iter().copied();
        let open = self.choices.iter_mut().zip(given);
        for (sequence, given) in open.filter_map(|(open, given)| Some((open.as_mut()?, given))) {
            let before = sequence.permit;
            if paused {
                (sequence.state, sequence.park_cause) = (SequenceState::Parked, ParkCause::Paused);
                self.state.release_permit(sequence);
            } else {
                update_permit(&mut self.state, sequence, given, clock);
            }
            if before == PermitState::Wanted && sequence.permit == PermitState::Held {
                self.state.clock_start_ns = clock.now_ns();
            }
        }
        self.show_wait(now);
        self.has_permit()
    }

    /// Returns recalled permits, the youngest choice's first.
    fn return_recalled_permits(&mut self) {
        if self.state.credit_window == 0 || self.choices.iter().flatten().count() < 2 {
            return;
        }
        for sequence in self.choices.iter_mut().rev().flatten() {
            if sequence.permit == PermitState::Held && self.state.is_permit_recalled() {
                (sequence.state, sequence.park_cause) =
                    (SequenceState::Parked, ParkCause::NoPermit);
                self.state.release_permit(sequence);
            }
        }
    }

    /// Shows a request that began and waits for a permit as parked, until its engine computes again.
    fn show_wait(&mut self, now: Instant) {
        let waits = !self.is_queued && self.waits_for_permit();
        if waits && !self.is_shown_waiting {
            self.state.progress.set_phase(Phase::Parked);
            self.notified = Phase::Parked;
            let reason = ParkReason::NoPermit;
            self.notify(Transition::Parked { reason }, now);
        }
        self.is_shown_waiting = waits;
    }

    /// Whether the request waits for a permit: a choice wants one, and none has one.
    pub fn waits_for_permit(&self) -> bool {
        let mut open = self.choices.iter().flatten();
        !self.has_permit() && open.any(|sequence| sequence.permit == PermitState::Wanted)
    }

    /// Whether an engine may go on with a choice: not while the choice is paused or waits for the reader, nor before it has
    /// the permit again that it gave back meanwhile.
    pub fn may_compute(&self, choice: usize) -> bool {
        let sequence = self.choices.get(choice).and_then(Option::as_ref);
        sequence.is_some_and(|sequence| {
            sequence.state != SequenceState::Parked || sequence.permit == PermitState::Held
        })
    }

    /// An engine gets the request. The engine counts the items so far as accepted, so that each choice may be a window
    /// ahead of them.
    pub fn note_placed(&mut self) {
        for (given, open) in self.given.iter_mut().zip(&self.choices) {
            *given = open.as_ref().map_or(0, |sequence| sequence.writer.len());
        }
    }

    /// The request was taken back from its engine: how far the readers are counts again.
    pub fn note_unplaced(&mut self) {
        self.given.fill(0);
    }

    /// No engine has the request. Shows a request whose choices all wait for their readers as parked.
    pub fn show_parked(&mut self, now: Instant) {
        let is_running = matches!(self.phase(), Phase::Prefilling | Phase::Running);
        if is_running && self.choices.iter().flatten().all(Sequence::is_stalled) {
            self.set_phase(Phase::Parked, now);
        }
    }

    /// Ends choices whose readers have rested for longer than the reader clock permits.
    pub fn finish_stalled(&mut self, now: Instant) {
        let (clock, limit) = (self.clock(now), self.state.clocks.reader);
        if limit.is_none() || self.state.policy != Policy::Cancel {
            return;
        }
        for choice in 0..self.choices.len() {
            let sequence = self.choices[choice].as_ref();
            let is_late = sequence.is_some_and(|sequence| {
                sequence.is_stalled() && clock.has_passed(sequence.parked_since_ns, limit)
            });
            if is_late {
                self.finish(choice, End::TimedOut(Clock::Reader), now);
            }
        }
    }

    pub(super) fn has_permit(&self) -> bool {
        let mut open = self.choices.iter().flatten();
        open.any(|sequence| sequence.permit == PermitState::Held)
    }
}

/// Takes the permit of a choice, or gives it back when the reader has rested for a while. The engine counts items up to
/// `given` as accepted.
fn update_permit(
    request: &mut RequestState,
    sequence: &mut Sequence,
    given: u64,
    clock: StepClock,
) {
    let (window, len) = (request.credit_window, sequence.writer.len());
    let ahead = len.saturating_sub(sequence.accepted().max(given));
    if window == 0 || sequence.generated() == 0 || ahead < window {
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
