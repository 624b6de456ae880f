//! Tokens that an answer's form leaves no choice about: verified several in one pass, as guesses are
//! ([`crate::speculation`]).

use super::Scheduler;
use crate::Sampling;
use crate::sequence::Sequence;
use crate::speculation::FORCED_TOKENS_MAX;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

impl Scheduler {
    /// Runs of forced tokens for those who generate, from the rows that are left and fit in the step's time, and from free
    /// pages. Returns how many rows they take. Those who have none have no run.
    pub(super) fn select_forced(&mut self) -> usize {
        let (mut rows, mut spans, mut decodes) = (0, 0, 0);
        for sequence in self.sequences.iter_mut().flatten() {
            sequence.drafts.clear();
            rows += sequence.rows;
            spans += usize::from(sequence.rows > 0);
            decodes += usize::from(sequence.rows > 0 && sequence.decodes());
        }
        let fits = self.pace.rows(decodes).saturating_sub(rows - decodes);
        let left = (self.rows_max - rows).min(self.logit_rows_max.saturating_sub(spans));
        let left = left.min(fits);
        let mut taken = 0;
        for at in 0..self.order.len() {
            taken += self.force(self.order[at], left - taken);
        }
        taken
    }

    /// The run of one sequence, of so many rows at most beside its own. Returns how many it takes.
    fn force(&mut self, key: usize, rows_left: usize) -> usize {
        let most = self.run_max(key).min(rows_left).min(FORCED_TOKENS_MAX);
        let Some(sequence) = self.sequences[key].as_mut() else {
            return 0;
        };
        let generates = sequence.rows > 0 && sequence.decodes();
        if most == 0 || !generates || sequence.constraint.is_none() {
            return 0;
        }
        let Some(common) = &self.requests[sequence.slot] else {
            return 0;
        };
        let (sampling, eos) = (&common.sampling, &common.eos);
        let ask = AssertUnwindSafe(|| sequence.ask_forced(most, sampling, eos));
        let Ok(found) = catch_unwind(ask) else {
            self.fail(key, FailCode::Panic);
            return 0;
        };
        let room = match found {
            0 => 0,
            found => self.reserve(key, found),
        };
        let Some(sequence) = self.sequences[key].as_mut() else {
            return 0;
        };
        sequence.drafts.keep(room);
        sequence.drafts.forced = room > 0;
        room
    }
}

impl Sequence {
    /// Asks its constraint, which may panic, for the tokens that must follow the last one. Returns how many
    /// its run has now.
    fn ask_forced(&mut self, most: usize, sampling: &Sampling, eos: &[u32]) -> usize {
        let (Some(constraint), Some(&last)) = (&self.constraint, self.tokens.last()) else {
            return 0;
        };
        let drafts = &mut self.drafts;
        drafts.run.push(last);
        constraint.forced(most, &mut drafts.run);
        // What follows an end is never drawn; the end itself is drawn from the row before it.
        let ends = |token: &u32| !sampling.ignore_eos && eos.contains(token);
        let end = drafts.guessed().iter().position(ends);
        drafts.keep(end.unwrap_or(most).min(most));
        drafts.guessed().len()
    }
}
