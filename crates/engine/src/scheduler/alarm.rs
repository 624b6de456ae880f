//! The next moment at which a clock changes something while no sequence has work.

use super::Scheduler;
use crate::WAIT_MAX;
use crate::request_state::RequestState;
use crate::sequence::Sequence;
use crate::sequence_permits::{PERMIT_KEPT, PermitState};
use crate::step_clock::StepClock;
use std::time::{Duration, Instant};

impl Scheduler {
    /// The first future moment at which a request's clock, or the engine's own, runs out; at the latest
    /// [`WAIT_MAX`] from now. A clock that is stopped at present may cause a needless wake-up; one that has run
    /// out causes no second one.
    pub(crate) fn next_alarm(&self, drain_deadline: Option<Instant>) -> Instant {
        let mut alarm = Alarm {
            clock: self.clock,
            first: self.clock.now() + WAIT_MAX,
        };
        alarm.add_moment(drain_deadline);
        if !self.queue.is_empty() {
            // Ageing may change which queued request is next.
            let ageing = self.priority.ageing();
            alarm.add_limit(self.clock.now_ns(), Some(ageing));
        }
        for submitted in self.queue.iter() {
            let request = &submitted.state;
            alarm.add_request(request);
            alarm.add_limit(request.clock_start_ns, request.clocks.queue);
        }
        for request in self.table.requests() {
            alarm.add_request(request);
            alarm.add_limit(request.clock_start_ns, request.clocks.first_token);
        }
        let slow_consumer = self.notifier.slow_consumer();
        for (key, _) in self.table.live() {
            if let Some((sequence, request)) = self.table.pair(key) {
                alarm.add_sequence(request, sequence, slow_consumer);
            }
        }
        alarm.first
    }
}

struct Alarm {
    clock: StepClock,
    first: Instant,
}

impl Alarm {
    fn add_request(&mut self, request: &RequestState) {
        self.add_moment(request.deadline);
        self.add_limit(request.arrived_ns, request.clocks.total);
    }

    fn add_sequence(&mut self, request: &RequestState, sequence: &Sequence, slow: Duration) {
        if sequence.is_stalled() {
            self.add_limit(sequence.parked_since_ns, Some(slow));
            self.add_limit(sequence.parked_since_ns, request.clocks.reader);
            if request.permits.is_some() && sequence.permit == PermitState::Held {
                self.add_limit(sequence.parked_since_ns, Some(PERMIT_KEPT));
            }
        } else {
            self.add_limit(sequence.waiting_since_ns, request.clocks.idle);
        }
    }

    fn add_limit(&mut self, since_ns: u64, limit: Option<Duration>) {
        self.add_moment(limit.and_then(|limit| self.clock.passes_at(since_ns, limit)));
    }

    fn add_moment(&mut self, moment: Option<Instant>) {
        if let Some(moment) = moment.filter(|&moment| moment > self.clock.now()) {
            self.first = self.first.min(moment);
        }
    }
}
