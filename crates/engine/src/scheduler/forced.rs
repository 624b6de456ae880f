//! Forced tokens: tokens that a constraint leaves no choice about, verified several in one pass as draft tokens
//! are ([`crate::speculation`]).

use super::Scheduler;
use crate::SamplingParams;
use crate::sequence::Sequence;
use crate::speculation::FORCED_TOKENS_MAX;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

/// Forced tokens that are looked for while a row is in flight: the one that the row gives, and one after it.
const AFTER_NEXT: usize = 2;

impl Scheduler {
    /// Gives forced tokens to decoding sequences, from rows that are left and fit in the step's time, and from free
    /// pages. Returns how many rows they take. Clears the draft tokens of all sequences
    /// but those whose verification is in flight.
    pub(super) fn select_forced(&mut self) -> usize {
        let sequences = self.table.sequences_mut();
        let settled = sequences.filter(|s| s.in_flight.is_none());
        settled.for_each(|s| s.drafts.clear());
        let left = self.rows.forced_rows_left(&self.table);
        let mut taken = 0;
        for at in 0..self.table.order_len() {
            taken += self.force_tokens(self.table.key_at(at), left - taken);
        }
        taken
    }

    /// Gives forced tokens to one sequence, at most `rows_left`. Returns how many.
    fn force_tokens(&mut self, key: usize, rows_left: usize) -> usize {
        let most = self.drafts_max(key).min(rows_left).min(FORCED_TOKENS_MAX);
        let Some((sequence, request)) = self.table.pair_mut(key) else {
            return 0;
        };
        let is_decoding = sequence.rows > 0 && sequence.is_decoding();
        let is_decoding = is_decoding && sequence.in_flight.is_none();
        if most == 0 || !is_decoding || sequence.constraint.is_none() {
            return 0;
        }
        let (sampling, eos) = (&request.sampling, &request.eos);
        let find = AssertUnwindSafe(|| sequence.find_forced(most, sampling, eos));
        let reserved = match catch_unwind(find) {
            Ok(0) => 0,
            Ok(found) => self.kv.reserve_drafts(sequence, found),
            Err(_) => {
                self.fail(key, FailCode::Panic);
                return 0;
            }
        };
        sequence.drafts.truncate(reserved);
        sequence.drafts.mark_forced();
        reserved
    }

    /// Finds out whether tokens are forced after the next one, which a row in flight gives.
    pub(crate) fn look_for_forced(&mut self, key: usize) {
        let Some((sequence, request)) = self.table.pair_mut(key) else {
            return;
        };
        if sequence.constraint.is_none() {
            return;
        }
        let (sampling, eos) = (&request.sampling, &request.eos);
        let find = AssertUnwindSafe(|| sequence.find_forced(AFTER_NEXT, sampling, eos));
        match catch_unwind(find) {
            Ok(found) => {
                sequence.awaits_forced = found == AFTER_NEXT;
                sequence.drafts.clear();
            }
            Err(_) => self.fail(key, FailCode::Panic),
        }
    }
}

impl Sequence {
    /// Asks the constraint, which may panic, for the tokens that must follow the last one. Returns how many
    /// there are.
    fn find_forced(&mut self, most: usize, sampling: &SamplingParams, eos: &[u32]) -> usize {
        let Some(constraint) = &self.constraint else {
            return 0;
        };
        let last = self.tokens.last();
        self.drafts.fill(last, |into| constraint.forced(most, into));
        if !sampling.ignore_eos {
            self.drafts.cut_at(eos);
        }
        self.drafts.truncate(most);
        self.drafts.tokens().len()
    }
}
