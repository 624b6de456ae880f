//! What the observer is told.

use super::settle::{PAUSED, PLACELESS};
use super::{Scheduler, count};
use crate::sequence::{Common, Sequence, State, Still, Told};
use crate::{Observer, Policy, Progress, RequestId, Stats, StepFacts, Transition, Why};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// One part in so many of the window must be free before a request is said to go on.
const RESUME_PART: u64 = 4;

/// The observer, if there is one and it has not panicked.
#[derive(Default)]
pub(super) struct Watch {
    observer: Option<Box<dyn Observer>>,
}

impl Watch {
    pub(super) fn by(observer: Box<dyn Observer>) -> Self {
        Self {
            observer: Some(observer),
        }
    }

    pub(super) fn step(&mut self, stats: &Stats, facts: &StepFacts) {
        self.call(stats, |observer| observer.step(facts));
    }

    fn call(&mut self, stats: &Stats, tell: impl FnOnce(&mut dyn Observer)) {
        let Some(observer) = &mut self.observer else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| tell(&mut **observer))).is_err() {
            count(&stats.observer_panics, 1);
            let observer = AssertUnwindSafe(self.observer.take());
            let _ = catch_unwind(move || drop(observer));
        }
    }
}

/// How the choices of a request stand.
#[derive(Default)]
struct Stand {
    running: usize,
    waiting: usize,
    stalled: usize,
    /// Those that have no place.
    placeless: usize,
    /// When the first of those that stall was parked.
    stalled_ns: Option<u64>,
    /// Whether one has used up most of its window.
    tight: bool,
}

impl Scheduler {
    /// At the step's time: the request's follower, and the observer.
    pub(super) fn tell(&mut self, id: RequestId, progress: &Progress, what: Transition) {
        let at = self.now;
        let stats = &self.inbox.stats;
        if catch_unwind(AssertUnwindSafe(|| progress.tell(what, at))).is_err() {
            count(&stats.observer_panics, 1);
        }
        self.watch
            .call(stats, |observer| observer.transition(id, what, at));
    }

    /// Tells which requests stand otherwise than the observer knows. Choices of a request are
    /// neighbours.
    pub(super) fn tell_changes(&mut self) {
        let mut at = 0;
        while let Some(slot) = self.slot_at(at) {
            let mut stand = Stand::default();
            let Some(common) = self.requests[slot].as_ref() else {
                return;
            };
            while self.slot_at(at) == Some(slot) {
                if let Some(sequence) = &self.sequences[self.order[at]] {
                    stand.add(common, sequence);
                }
                at += 1;
            }
            let told = self.stands(common, &stand);
            self.tell_change(slot, told);
        }
    }

    /// What the observer should know.
    fn stands(&self, common: &Common, stand: &Stand) -> Told {
        let lags = matches!(common.told, Told::Credit { .. } | Told::Detached);
        if common.paused {
            Told::Paused
        } else if stand.placeless > 0 && stand.running + stand.waiting == 0 {
            Told::Placeless
        } else if stand.stalled > 0 && stand.running + stand.waiting == 0 {
            self.stalls(common, stand.stalled_ns.unwrap_or(self.now_ns))
        } else if lags && stand.tight {
            common.told
        } else if stand.waiting > 0 && stand.running == 0 {
            Told::Preempted
        } else {
            Told::Going
        }
    }

    /// Of a request whose choices all wait for their readers, since then.
    fn stalls(&self, common: &Common, since_ns: u64) -> Told {
        let detaches = common.policy == Policy::Detach;
        if common.told == Told::Detached || detaches && self.over(since_ns, common.clocks.reader) {
            return Told::Detached;
        }
        let slow = common.told == Told::Credit { slow: true };
        Told::Credit {
            slow: slow || self.over(since_ns, Some(self.slow_consumer)),
        }
    }

    fn tell_change(&mut self, slot: usize, told: Told) {
        let Some(common) = &mut self.requests[slot] else {
            return;
        };
        let (id, known) = (common.id, std::mem::replace(&mut common.told, told));
        if known == told {
            return;
        }
        let progress = Arc::clone(&common.progress);
        let was_credit = matches!(known, Told::Credit { .. });
        match told {
            Told::Going => self.tell(id, &progress, Transition::Resumed),
            Told::Paused => self.tell(id, &progress, PAUSED),
            Told::Preempted => self.tell(id, &progress, Transition::Preempted),
            Told::Placeless => self.tell(id, &progress, PLACELESS),
            Told::Detached => {
                let what = Transition::Parked { why: Why::Detached };
                self.tell(id, &progress, what);
            }
            Told::Credit { slow } => {
                if !was_credit {
                    self.tell(id, &progress, Transition::Backpressure);
                }
                if slow {
                    count(&self.inbox.stats.slow_consumers, 1);
                    self.tell(id, &progress, Transition::SlowConsumer);
                }
            }
        }
    }
}

impl Stand {
    fn add(&mut self, common: &Common, sequence: &Sequence) {
        let window = common.credit_window;
        let free = window.div_ceil(RESUME_PART).max(1);
        self.tight |= window > 0 && sequence.writer.unaccepted() + free > window;
        match sequence.state {
            State::Active => self.running += 1,
            State::Waiting => self.waiting += 1,
            // It stands as the choice that computes its prompt does.
            State::Forking => {}
            State::Parked if sequence.still == Still::Place => self.placeless += 1,
            State::Parked => {
                self.stalled += 1;
                let earlier = self.stalled_ns.unwrap_or(u64::MAX);
                self.stalled_ns = Some(earlier.min(sequence.parked_ns));
            }
        }
    }
}
