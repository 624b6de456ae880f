//! Changes to requests that run, made at the head of a step.

use super::Scheduler;
use crate::{RequestId, Steer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

impl Scheduler {
    /// Makes the changes whose time has come. Those for requests without a first token wait; those for
    /// requests that are gone are forgotten.
    pub(super) fn steer(&mut self) {
        self.inbox.take_steers(&mut self.steers);
        let mut steers = std::mem::take(&mut self.steers);
        steers.retain(|(id, steer)| !self.has_steered(*id, steer));
        self.steers = steers;
    }

    /// False: not yet.
    fn has_steered(&mut self, id: RequestId, steer: &Steer) -> bool {
        let slot = self.inbox.slot(id);
        let Some(common) = self.requests[slot].as_mut().filter(|c| c.id == id) else {
            return !self.queue.iter().any(|submitted| submitted.common.id == id);
        };
        let mut own = self.sequences.iter().flatten().filter(|s| s.slot == slot);
        if own.any(|sequence| sequence.own() == 0) {
            return false;
        }
        steer.change(&mut common.sampling);
        let alternatives = common.sampling.top_logprobs as usize;
        for at in 0..self.order.len() {
            let key = self.order[at];
            if self.sequences[key].as_ref().is_some_and(|s| s.slot == slot) {
                self.inject(key, &steer.inject, alternatives);
            }
        }
        true
    }

    /// The positions after what was computed are many now, and may need pages: it starts again from the
    /// pages that are known by their content, as who was preempted does.
    fn inject(&mut self, key: usize, ids: &[u32], alternatives: usize) {
        let Some(sequence) = self.sequences[key].as_mut().filter(|_| !ids.is_empty()) else {
            return;
        };
        let vocab = self.inbox.dims.vocab;
        let put_in = AssertUnwindSafe(|| sequence.inject(ids, vocab, alternatives));
        match catch_unwind(put_in) {
            Ok((0, None)) => {}
            Ok((_, Some(end))) => self.end(key, end),
            Ok((_, None)) => {
                sequence.drafts.clear();
                self.preempt(key);
            }
            Err(_) => self.fail(key, FailCode::Panic),
        }
    }
}
