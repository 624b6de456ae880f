//! Ends: which requests end at the head of a step, what an end gives back, and the next moment at which a clock changes
//! something while no sequence has work.

use super::Scheduler;
use crate::inbox::{InboxState, SubmittedRequest};
use crate::request_state::RequestState;
use crate::sequence::{Sequence, SequenceState};
use crate::step_time::StepClock;
use crate::terms::{PERMIT_KEPT, PermitState};
use crate::{Phase, Policy, Transition, WAIT_MAX};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Clock, End, FailCode};

impl Scheduler {
    /// Ends requests that were cancelled or abandoned, whose deadline has passed or whose clock has run out,
    /// and, after the engine's drain deadline, all.
    pub(super) fn end_expired(&mut self, state: InboxState) {
        let now = self.clock.now();
        let drained = state.drain_deadline.is_some_and(|deadline| now >= deadline);
        for at in 0..self.table.order_len() {
            let key = self.table.key_at(at);
            if let Some(end) = self.end_of(key, now, drained) {
                self.end(key, end);
            }
        }
        let mut at = 0;
        while let Some(submitted) = self.queue.get(at) {
            match self.end_of_queued(submitted, now, drained) {
                Some(end) => self.end_queued(at, end),
                None => at += 1,
            }
        }
    }

    /// Ends one choice: releases the pages and the permit, then ends the logs.
    pub(super) fn end(&mut self, key: usize, end: End) {
        let Some(mut sequence) = self.table.take(key) else {
            return;
        };
        self.hand_over(&mut sequence);
        self.speculator.release(&mut sequence);
        self.kv.release(&mut sequence);
        let slot = sequence.slot;
        let request = self
            .table
            .request_mut(slot)
            .expect("an open choice has a request");
        request.open_choices -= 1;
        request.release_permit(&mut sequence);
        if sequence.is_stalled() {
            request.progress.end_stall();
        }
        let fair_shares = &mut self.priority.fair_shares;
        if sequence.state != SequenceState::Parked {
            fair_shares.end_demand(request.fair_share);
        }
        fair_shares.drop_uncharged(request.fair_share, sequence.uncharged);
        if request.open_choices == 0
            && let Some(mut request) = self.table.remove_request(slot)
        {
            self.end_request(&request, end);
            request.drop_guards();
        }
        self.count_end(end);
        self.publish_gauges();
        sequence.end_logs(end);
    }

    /// Ends all choices of a request because one of them failed.
    pub(crate) fn fail(&mut self, key: usize, code: FailCode) {
        let Some(slot) = self.table.get(key).map(|s| s.slot) else {
            return;
        };
        for at in 0..self.table.order_len() {
            let key = self.table.key_at(at);
            if self.table.belongs_to(key, slot) {
                self.end(key, End::Failed(code));
            }
        }
    }

    /// Ends all choices that were started.
    pub(crate) fn fail_started(&mut self, code: FailCode) {
        for at in 0..self.table.order_len() {
            self.end(self.table.key_at(at), End::Failed(code));
        }
    }

    /// The reason to end a started choice now.
    fn end_of(&self, key: usize, now: Instant, drained: bool) -> Option<End> {
        let (sequence, request) = self.table.pair(key)?;
        if sequence.writer.is_abandoned() {
            return Some(End::Cancelled);
        }
        let end = self.end_of_request(request, now, drained);
        end.or_else(|| Some(End::TimedOut(self.expired_clock(request, sequence)?)))
    }

    /// The reason to end a queued request now.
    fn end_of_queued(
        &self,
        submitted: &SubmittedRequest,
        now: Instant,
        drained: bool,
    ) -> Option<End> {
        if submitted.sequences.iter().all(|s| s.writer.is_abandoned()) {
            return Some(End::Cancelled);
        }
        let request = &submitted.state;
        let end = self.end_of_request(request, now, drained);
        end.or_else(|| {
            let limit = request.clocks.queue;
            let is_late = self.clock.has_passed(request.clock_start_ns, limit);
            let is_late = is_late && submitted.can_start();
            is_late.then_some(End::TimedOut(Clock::Queue))
        })
    }

    /// The reason to end all choices of a request now.
    fn end_of_request(&self, request: &RequestState, now: Instant, drained: bool) -> Option<End> {
        if self.inbox.is_cancelled(request.id, request.slot) {
            return Some(End::Cancelled);
        }
        if request.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(End::Deadline);
        }
        if self
            .clock
            .has_passed(request.arrived_ns, request.clocks.total)
        {
            return Some(End::TimedOut(Clock::Total));
        }
        drained.then_some(End::Failed(FailCode::Shutdown))
    }

    /// The clock of a started sequence that has run out, beside the total one.
    fn expired_clock(&self, request: &RequestState, sequence: &Sequence) -> Option<Clock> {
        let (clock, clocks) = (self.clock, &request.clocks);
        let must_park = sequence.cause_to_park(request).is_some();
        if sequence.is_stalled() {
            let fired = must_park && clock.has_passed(sequence.parked_since_ns, clocks.reader);
            return (fired && request.policy == Policy::Cancel).then_some(Clock::Reader);
        }
        if must_park || sequence.state == SequenceState::Parked {
            return None;
        }
        if request.has_token {
            let fired = clock.has_passed(sequence.waiting_since_ns, clocks.idle);
            return fired.then_some(Clock::Idle);
        }
        let fired = clock.has_passed(request.clock_start_ns, clocks.first_token);
        fired.then_some(Clock::FirstToken)
    }

    fn end_queued(&mut self, at: usize, end: End) {
        let Some(mut submitted) = self.queue.remove(at) else {
            return;
        };
        let request = &mut submitted.state;
        self.inbox.leave_queue(request);
        request.release_permit(&mut submitted.sequences[0]);
        if !request.paused {
            let fair_shares = &mut self.priority.fair_shares;
            fair_shares.end_demand(request.fair_share);
        }
        self.end_request(request, end);
        request.drop_guards();
        for _ in &submitted.sequences {
            self.count_end(end);
        }
        self.publish_gauges();
        for sequence in submitted.sequences {
            sequence.end_logs(end);
        }
    }

    /// When the choice that computes the prompt for others leaves, the oldest of the others takes over.
    fn hand_over(&mut self, leader: &mut Sequence) {
        if leader.generated() > 0 || leader.state == SequenceState::Forking {
            return;
        }
        let heirs = self.table.sequences_mut();
        let heirs = heirs.filter(|s| s.slot == leader.slot && s.state == SequenceState::Forking);
        if let Some(heir) = heirs.min_by_key(|s| s.age) {
            heir.take_over(leader);
            // A choice that waits for a parked prompt had demand; a parked one has none.
            if heir.state == SequenceState::Parked {
                let fair_share = self.table.fair_share(leader.slot);
                self.priority.fair_shares.end_demand(fair_share);
            }
        }
    }

    fn end_request(&mut self, request: &RequestState, end: End) {
        request.progress.set_ended(self.clock.now_ns());
        request.progress.set_phase(Phase::Ended);
        self.priority.fair_shares.close(request.fair_share);
        let is_final = self.timestamps.add_end(request, end);
        self.queue.vacate_slot(request.slot);
        if is_final {
            let (id, progress) = (request.id, Arc::clone(&request.progress));
            let (stats, clock) = (&self.inbox.stats, self.clock);
            self.notifier
                .notify(stats, clock, id, &progress, Transition::Ended(end));
        }
    }

    fn count_end(&mut self, end: End) {
        self.counters.ended += 1;
        self.inbox.stats.count_end(end);
    }
}

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
        let slow_consumer = self.notifier.slow_consumer;
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
