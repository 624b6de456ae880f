//! What the operator changes while the engine runs.

use super::{Scheduler, nanos};

impl Scheduler {
    /// To be called at each step's head.
    pub(super) fn tune(&mut self) {
        let tuning = self.inbox.tuning.get();
        self.ageing_ns = nanos(tuning.ageing).max(1);
        self.slow_consumer = tuning.slow_consumer;
        self.pace.set_target(tuning.step_target);
    }
}
