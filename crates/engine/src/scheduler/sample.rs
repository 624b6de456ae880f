//! Sampling: from a row of logits to a token, without a change to the sequence.

use super::Scheduler;
use crate::sampler::{Sampled, Sampler};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Scheduler {
    /// Samples the next token of a sequence; [`Scheduler::apply`] follows. `None`: the sequence has ended.
    pub(crate) fn sample(
        &mut self,
        key: usize,
        logits: &[f32],
        sampler: &mut Sampler,
    ) -> Option<Sampled> {
        let (sequence, request) = self.table.pair_mut(key)?;
        let sample = AssertUnwindSafe(|| sequence.sample(request, logits, sampler));
        Some(match catch_unwind(sample) {
            Ok(Some(token)) => Sampled::Token(token),
            Ok(None) => Sampled::NoToken,
            Err(_) => Sampled::Panicked,
        })
    }
}
