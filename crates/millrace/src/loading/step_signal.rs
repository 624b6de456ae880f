//! A call after each step of an engine, for the tasks that send tokens to gateways.

use engine::{Observer, RequestId, StepFacts, Transition};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Instant;

/// The waker that is called after each step, once there is one.
pub(crate) type StepSignal = Arc<OnceLock<Waker>>;

/// An observer that also calls the signal.
pub(super) struct SignallingObserver {
    pub(super) inner: Box<dyn Observer>,
    pub(super) signal: StepSignal,
}

impl Observer for SignallingObserver {
    fn transition(&mut self, id: RequestId, transition: Transition, now: Instant) {
        self.inner.transition(id, transition, now);
    }

    fn step(&mut self, facts: &StepFacts) {
        self.inner.step(facts);
        if let Some(waker) = self.signal.get() {
            waker.wake_by_ref();
        }
    }
}
