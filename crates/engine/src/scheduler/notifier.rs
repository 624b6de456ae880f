//! Notifications to the observer and to requests' followers; gauges and request phases, published after each step for
//! other threads; times of events that happen after the forward pass.
//!
//! The clock is read once per step, at the head. A token or an end after the forward pass is recorded with that
//! time at once, so that a reader of the token finds a time, and again at the next step's head, which follows
//! directly and has the more exact time.

use super::Scheduler;
use super::draft_model::DraftModel;
use super::sequence_table::SequenceTable;
use crate::request_state::{ObservedState, RequestState};
use crate::sequence::{ParkCause, Sequence, SequenceState};
use crate::stats::count;
use crate::step_time::StepClock;
use crate::{
    Observer, ParkReason, Phase, Policy, Progress, RequestId, Stats, StepFacts, Transition,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stream::End;

/// A request counts as resumed when one part in `RESUME_PART` of the credit window is free again.
const RESUME_PART: u64 = 4;

/// The observer, until it panics, and the rule for slow consumers.
pub(super) struct Notifier {
    observer: Option<Box<dyn Observer>>,
    /// A reader is slow when its request is parked for credit longer than this.
    pub(super) slow_consumer: Duration,
}

/// Counts of a request's choices by state.
#[derive(Default)]
struct ChoiceCounts {
    running: usize,
    waiting: usize,
    stalled: usize,
    without_permit: usize,
    /// Start of the earliest stall.
    stalled_since_ns: Option<u64>,
    /// Whether one choice has used up most of the credit window.
    is_low_on_credit: bool,
}

impl Notifier {
    pub(super) fn new(slow_consumer: Duration) -> Self {
        Self {
            observer: None,
            slow_consumer,
        }
    }

    /// Replaces the observer.
    pub(super) fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Reports a finished step.
    pub(super) fn notify_step(&mut self, stats: &Stats, facts: &StepFacts) {
        self.call_observer(stats, |observer| observer.step(facts));
    }

    /// Reports a transition to the request's follower and to the observer, with the step's time.
    pub(super) fn notify(
        &mut self,
        stats: &Stats,
        clock: StepClock,
        id: RequestId,
        progress: &Progress,
        what: Transition,
    ) {
        let at = clock.now();
        if catch_unwind(AssertUnwindSafe(|| progress.notify(what, at))).is_err() {
            count(&stats.observer_panics, 1);
        }
        self.call_observer(stats, |observer| observer.transition(id, what, at));
    }

    /// Reports the requests whose state differs from the state last reported.
    pub(super) fn notify_changes(
        &mut self,
        table: &mut SequenceTable,
        stats: &Stats,
        clock: StepClock,
    ) {
        let mut at = 0;
        while let Some(slot) = table.slot_at(at) {
            let mut choices = ChoiceCounts::default();
            let Some(request) = table.request(slot) else {
                return;
            };
            while table.slot_at(at) == Some(slot) {
                if let Some(sequence) = table.get(table.key_at(at)) {
                    choices.add(request, sequence);
                }
                at += 1;
            }
            let state = self.state_of(request, &choices, clock);
            if let Some(request) = table.request_mut(slot) {
                self.notify_state(request, state, stats, clock);
            }
        }
    }

    /// The state that the observer should know.
    fn state_of(
        &self,
        request: &RequestState,
        choices: &ChoiceCounts,
        clock: StepClock,
    ) -> ObservedState {
        let observed = request.observed;
        let lags = matches!(
            observed,
            ObservedState::Credit { .. } | ObservedState::Detached
        );
        let has_work = choices.running + choices.waiting > 0;
        if request.paused {
            ObservedState::Paused
        } else if choices.without_permit > 0 && !has_work {
            ObservedState::NoPermit
        } else if choices.stalled > 0 && !has_work {
            let since_ns = choices.stalled_since_ns.unwrap_or(clock.now_ns());
            self.stalled_state(request, since_ns, clock)
        } else if lags && choices.is_low_on_credit {
            observed
        } else if choices.waiting > 0 && choices.running == 0 {
            ObservedState::Preempted
        } else {
            ObservedState::Running
        }
    }

    /// The state of a request all of whose choices wait for their readers.
    fn stalled_state(
        &self,
        request: &RequestState,
        since_ns: u64,
        clock: StepClock,
    ) -> ObservedState {
        let detaches = request.policy == Policy::Detach;
        let is_detached = request.observed == ObservedState::Detached;
        if is_detached || detaches && clock.has_passed(since_ns, request.clocks.reader) {
            return ObservedState::Detached;
        }
        let was_slow = request.observed == ObservedState::Credit { slow: true };
        ObservedState::Credit {
            slow: was_slow || clock.has_passed(since_ns, Some(self.slow_consumer)),
        }
    }

    fn notify_state(
        &mut self,
        request: &mut RequestState,
        state: ObservedState,
        stats: &Stats,
        clock: StepClock,
    ) {
        let known = std::mem::replace(&mut request.observed, state);
        if known == state {
            return;
        }
        let (id, progress) = (request.id, Arc::clone(&request.progress));
        let mut notify = |what| self.notify(stats, clock, id, &progress, what);
        match state {
            ObservedState::Running => notify(Transition::Resumed),
            ObservedState::Paused => notify(Transition::Parked {
                reason: ParkReason::Paused,
            }),
            ObservedState::Preempted => notify(Transition::Preempted),
            ObservedState::NoPermit => notify(Transition::Parked {
                reason: ParkReason::NoPermit,
            }),
            ObservedState::Detached => notify(Transition::Parked {
                reason: ParkReason::Detached,
            }),
            ObservedState::Credit { slow } => {
                if !matches!(known, ObservedState::Credit { .. }) {
                    notify(Transition::Backpressure);
                }
                if slow {
                    count(&stats.slow_consumers, 1);
                    notify(Transition::SlowConsumer);
                }
            }
        }
    }

    /// Calls the observer; one that panics is dropped and counted.
    fn call_observer(&mut self, stats: &Stats, call: impl FnOnce(&mut dyn Observer)) {
        let Some(observer) = &mut self.observer else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| call(&mut **observer))).is_err() {
            count(&stats.observer_panics, 1);
            let observer = AssertUnwindSafe(self.observer.take());
            let _ = catch_unwind(move || drop(observer));
        }
    }
}

impl ChoiceCounts {
    fn add(&mut self, request: &RequestState, sequence: &Sequence) {
        let window = request.credit_window;
        let free = window.div_ceil(RESUME_PART).max(1);
        self.is_low_on_credit |= window > 0 && sequence.writer.unaccepted() + free > window;
        match sequence.state {
            SequenceState::Active => self.running += 1,
            SequenceState::Waiting => self.waiting += 1,
            // Counted with the choice that computes the prompt.
            SequenceState::Forking => {}
            SequenceState::Parked if sequence.park_cause == ParkCause::NoPermit => {
                self.without_permit += 1;
            }
            SequenceState::Parked => {
                self.stalled += 1;
                let earlier = self.stalled_since_ns.unwrap_or(u64::MAX);
                self.stalled_since_ns = Some(earlier.min(sequence.parked_since_ns));
            }
        }
    }
}

impl Scheduler {
    /// Writes the gauges.
    pub(crate) fn publish_gauges(&self) {
        let stats = &self.inbox.stats;
        let pages = self.kv.counts();
        let (mut running, mut parked, mut paused, mut waiting) = (0, 0, 0, 0);
        for (_, sequence) in self.table.live() {
            match (sequence.state, sequence.park_cause) {
                (SequenceState::Active | SequenceState::Forking, _) => running += 1,
                (SequenceState::Waiting, _) => waiting += 1,
                (SequenceState::Parked, ParkCause::Credit) => parked += 1,
                (SequenceState::Parked, ParkCause::NoPermit) => waiting += 1,
                (SequenceState::Parked, ParkCause::Paused) => paused += 1,
            }
        }
        set_gauge(&stats.queued, self.inbox.queued());
        set_gauge(&stats.running, running);
        set_gauge(&stats.parked, parked);
        set_gauge(&stats.paused, paused);
        set_gauge(&stats.waiting, waiting);
        set_gauge(&stats.pages_free, pages.free);
        set_gauge(&stats.pages_used, pages.used);
        set_gauge(&stats.pages_cached, pages.cached);
        let draft_model = self.speculator.draft_model.as_ref();
        let draft_pages = draft_model.map_or(0, DraftModel::pages_used);
        set_gauge(&stats.draft_pages_used, draft_pages);
    }

    /// Sets each request's phase to the phase of the busiest choice. Choices of a request are neighbors in the
    /// order.
    pub(crate) fn publish_phases(&self) {
        let mut at = 0;
        while let Some(slot) = self.table.slot_at(at) {
            let mut phase = Phase::Parked;
            while self.table.slot_at(at) == Some(slot) {
                if let Some(sequence) = self.table.get(self.table.key_at(at)) {
                    phase = busier_phase(phase, sequence);
                }
                at += 1;
            }
            if let Some(request) = self.table.request(slot) {
                let is_paused = phase == Phase::Parked && request.paused;
                let phase = if is_paused { Phase::Paused } else { phase };
                request.progress.set_phase(phase);
            }
        }
    }
}

fn busier_phase(phase: Phase, sequence: &Sequence) -> Phase {
    match (phase, sequence.state) {
        (Phase::Running, _) => Phase::Running,
        (_, SequenceState::Active) if sequence.generated() > 0 => Phase::Running,
        (_, SequenceState::Active) => Phase::Prefilling,
        (phase, _) => phase,
    }
}

fn set_gauge(gauge: &AtomicU64, value: usize) {
    gauge.store(value as u64, Ordering::Relaxed);
}

/// Events whose time is recorded again at the next step's head.
pub(super) struct Timestamps {
    provisional: Vec<ProvisionalTime>,
    /// One for each token of the last step that was not the first token of a choice.
    token_gaps: Vec<TokenGap>,
    /// Whether the plan of the current step is made: from then on times are provisional.
    is_planned: bool,
}

/// The end of a wait for a token.
struct TokenGap {
    /// Start of the wait; `u64::MAX` for a token of the same step as the preceding token.
    since_ns: u64,
    progress: Arc<Progress>,
}

enum ProvisionalTime {
    FirstToken {
        id: RequestId,
        progress: Arc<Progress>,
        arrived_ns: u64,
    },
    Ended {
        id: RequestId,
        progress: Arc<Progress>,
        /// `None`: the observer was notified already.
        end: Option<End>,
    },
}

impl Timestamps {
    pub(super) fn new(requests_max: usize, tokens_max: usize) -> Self {
        Self {
            provisional: Vec::with_capacity(2 * requests_max),
            token_gaps: Vec::with_capacity(tokens_max),
            is_planned: false,
        }
    }

    /// The step's plan is made.
    pub(super) fn set_planned(&mut self) {
        self.is_planned = true;
    }

    /// Records a request's first token.
    pub(super) fn add_first_token(&mut self, request: &RequestState) {
        self.provisional.push(ProvisionalTime::FirstToken {
            id: request.id,
            progress: Arc::clone(&request.progress),
            arrived_ns: request.arrived_ns,
        });
    }

    /// Records a later token. `since_ns` is the start of the wait for the token; `None`: the token is from
    /// the same step as the preceding token.
    pub(super) fn add_token(&mut self, request: &RequestState, since_ns: Option<u64>) {
        self.token_gaps.push(TokenGap {
            since_ns: since_ns.unwrap_or(u64::MAX),
            progress: Arc::clone(&request.progress),
        });
    }

    /// Records a request's end. Returns whether the time is final, so that the observer is notified now.
    pub(super) fn add_end(&mut self, request: &RequestState, end: End) -> bool {
        self.provisional.push(ProvisionalTime::Ended {
            id: request.id,
            progress: Arc::clone(&request.progress),
            end: self.is_planned.then_some(end),
        });
        !self.is_planned
    }

    /// Records the last step's events with the time of this step's head, and notifies observers.
    pub(super) fn finalize(&mut self, clock: StepClock, stats: &Stats, notifier: &mut Notifier) {
        self.is_planned = false;
        for time in self.provisional.drain(..) {
            match time {
                ProvisionalTime::FirstToken {
                    id,
                    progress,
                    arrived_ns,
                } => {
                    progress.set_first_token(clock.now_ns());
                    stats.first_token.record(clock.elapsed_ns(arrived_ns));
                    notifier.notify(stats, clock, id, &progress, Transition::FirstToken);
                }
                ProvisionalTime::Ended { id, progress, end } => {
                    progress.set_ended(clock.now_ns());
                    if let Some(end) = end {
                        notifier.notify(stats, clock, id, &progress, Transition::Ended(end));
                    }
                }
            }
        }
        for gap in self.token_gaps.drain(..) {
            let waited = clock.elapsed_ns(gap.since_ns);
            stats.inter_token.record(waited);
            gap.progress.add_gap(waited, clock.now_ns());
        }
    }
}
