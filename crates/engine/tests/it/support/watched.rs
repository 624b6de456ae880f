//! An observer that records notifications and checks the order of transitions.

use engine::{Observer, ParkReason, RequestId, StepFacts, Transition};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use stream::End;

/// The record, as the test reads it.
#[derive(Clone, Default)]
pub struct Watched {
    told: Arc<Mutex<Told>>,
}

#[derive(Default)]
pub struct Told {
    pub transitions: HashMap<RequestId, Vec<(Transition, Instant)>>,
    pub steps: Vec<StepFacts>,
}

/// The recording observer.
struct Witness(Watched);

impl Watched {
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(Witness(self.clone()))
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The transitions of one request, in order.
    pub fn of(&self, id: RequestId) -> Vec<Transition> {
        let transitions = self.with(|told| told.transitions.get(&id).cloned());
        let transitions = transitions.unwrap_or_default();
        transitions.into_iter().map(|(what, _)| what).collect()
    }

    /// The end of a request. Panics unless its transitions are in a legal order
    /// and its times do not decrease.
    pub fn end(&self, id: RequestId) -> End {
        let all = self.with(|told| told.transitions.get(&id).cloned());
        let all = all.unwrap_or_default();
        assert!(all.is_sorted_by_key(|(_, at)| *at), "{id:?}: {all:?}");
        let mut state = State::default();
        for (what, _) in &all {
            assert!(state.may_follow(*what), "{id:?}: {what:?} in {all:?}");
        }
        state
            .ended
            .unwrap_or_else(|| panic!("{id:?} has no end: {all:?}"))
    }
}

impl Observer for Witness {
    fn transition(&mut self, request: RequestId, what: Transition, at: Instant) {
        self.0.with(|told| {
            let transitions = told.transitions.entry(request).or_default();
            transitions.push((what, at));
        });
    }

    fn step(&mut self, facts: &StepFacts) {
        self.0.with(|told| told.steps.push(*facts));
    }
}

/// The state of a request by its transitions.
#[derive(Default)]
struct State {
    queued: bool,
    started: bool,
    has_token: bool,
    /// The last reason to stop since the last resume.
    stands: Option<Transition>,
    slow: bool,
    ended: Option<End>,
}

impl State {
    /// Applies a transition. Returns whether its order is legal.
    fn may_follow(&mut self, what: Transition) -> bool {
        if self.ended.is_some() || self.queued == (what == Transition::Queued) {
            return false;
        }
        match what {
            Transition::Queued => self.queued = true,
            Transition::Started => {
                let may = !self.started && self.stands.is_none();
                self.started = true;
                return may;
            }
            Transition::FirstToken => {
                let may = self.started && !std::mem::replace(&mut self.has_token, true);
                return may;
            }
            Transition::Backpressure | Transition::Preempted | Transition::Parked { .. } => {
                let pause = what
                    == Transition::Parked {
                        reason: ParkReason::Paused,
                    };
                let may = self.stands != Some(what) && (self.started || pause);
                self.stands = Some(what);
                self.slow = false;
                return may;
            }
            Transition::SlowConsumer => {
                let may = self.stands == Some(Transition::Backpressure) && !self.slow;
                self.slow = true;
                return may;
            }
            Transition::Resumed => return self.stands.take().is_some(),
            // Only requests of a remote handle move.
            Transition::Moved => return false,
            Transition::Ended(end) => self.ended = Some(end),
        }
        true
    }
}
