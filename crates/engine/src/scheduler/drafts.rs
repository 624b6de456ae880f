//! Draft tokens, and forced tokens, which a constraint leaves no choice about: which sequences get how many, the rows and pages these take, and their verification.
//! [`crate::speculation`] explains why no sampled token depends on them.
//!
//! Verification rows write keys and values at positions that do not count as computed until the token there
//! is sampled; the next step's row for such a position writes it again. So the rows of rejected draft tokens
//! need not be undone; only the pages taken for these rows, and in a model with recurrent layers the states after them, are
//! released at once.

use super::Scheduler;
use crate::SamplingParams;
use crate::fair_share::DECODE_COST;
use crate::plan::PlannedSpan;
use crate::sequence::Sequence;
use crate::speculation::{FORCED_TOKENS_MAX, Verification};
use crate::stats::count;
use model::{Batch, DRAWN, Want};
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

impl Scheduler {
    /// Gives draft tokens to decoding sequences without forced ones, in a step without prefill, from the rows and
    /// the free pages that are left: no page is taken from a sequence, or from the prefix cache, for a draft token.
    pub(super) fn select_drafts(&mut self, forced_rows: usize) {
        let mut keys = std::mem::take(&mut self.keys);
        self.list_keys_with_rows(&mut keys);
        let is_prefilling = |&key: &usize| self.table.get(key).is_some_and(|s| !s.is_decoding());
        if !keys.iter().any(is_prefilling) && self.speculator.begin_step(keys.len()) {
            let mut rows_left = self.rows.draft_rows_left(keys.len(), forced_rows);
            for &key in &keys {
                rows_left -= self.give_drafts(key, keys.len(), rows_left);
            }
        }
        self.keys = keys;
    }

    /// Gives draft tokens to one of `sequences` sequences, at most `rows_left`. Returns how many.
    fn give_drafts(&mut self, key: usize, sequences: usize, rows_left: usize) -> usize {
        let most = self.drafts_max(key).min(rows_left);
        let Some((sequence, request)) = self.table.pair_mut(key) else {
            return 0;
        };
        if sequence.drafts.is_forced || sequence.in_flight.is_some() {
            return 0;
        }
        let count = self
            .speculator
            .draft_count(sequence, request, sequences, most);
        if count == 0 {
            return 0;
        }
        let reserved = self.kv.reserve_drafts(sequence, count);
        self.speculator.keep_drafts(&mut self.table, key, reserved)
    }

    /// The draft tokens that a sequence could use if all were right: each gives a token, and one more is
    /// sampled after the last.
    pub(super) fn drafts_max(&self, key: usize) -> usize {
        let Some((sequence, request)) = self.table.pair(key) else {
            return 0;
        };
        let credit = sequence.credit_left(request.credit_window);
        sequence.tokens_left().min(credit).saturating_sub(1)
    }

    /// Puts a planned span and the draft tokens after the span into the batch, unless the sequence has ended
    /// since the plan. Returns the number of rows of the span that will have logits.
    pub(crate) fn put_span(&self, span: &PlannedSpan, batch: &mut Batch) -> Option<usize> {
        let sequence = self.table.get(span.key)?;
        let (first, pages) = (span.positions.start, &sequence.pages);
        let adapters = sequence.root.adapters;
        let rows = sequence.drafts.rows();
        if !rows.is_empty() {
            batch.push_adapted(rows, first, pages, Want::All, adapters);
            batch.set_states(sequence.states.of_verification(rows.len() - 1));
            sequence.media.put_axes(batch);
            return Some(rows.len());
        }
        let drawn = sequence.next_draw().map(|draw| DRAWN | draw);
        let tokens = match &drawn {
            Some(token) => std::slice::from_ref(token),
            None => &sequence.tokens[span.positions.clone()],
        };
        let want = match (&sequence.pool, span.is_sampled) {
            (Some(pool), is_last) => pool.wanted_rows(is_last),
            (None, true) => Want::Last,
            (None, false) => Want::None,
        };
        batch.push_adapted(tokens, first, pages, want, adapters);
        batch.set_states(sequence.states.of_span(&span.positions));
        sequence
            .media
            .put_rows(batch, |row| self.encodings.rows(row));
        Some(want.logit_rows(tokens.len()))
    }

    /// Removes a sequence's draft tokens before they are computed (again). Returns whether there were any.
    pub(crate) fn drop_drafts(&mut self, key: usize) -> bool {
        let Some(sequence) = self.table.get_mut(key) else {
            return false;
        };
        let had_drafts = !sequence.drafts.rows().is_empty();
        sequence.drafts.clear();
        had_drafts
    }

    /// Starts the verification of a sequence's draft tokens.
    pub(super) fn begin_verification(&self, key: usize) -> Verification {
        match self.table.pair(key) {
            Some((sequence, request)) => Verification::of(&sequence.drafts, &request.progress),
            None => Verification::default(),
        }
    }

    /// Counts the verified draft tokens, charges the accepted ones and gives unused pages and states back.
    pub(crate) fn finish_verification(&mut self, key: usize, verification: &Verification) {
        if let Some(sequence) = self.table.get_mut(key) {
            self.kv.release_draft_states(sequence);
        }
        let (drafted, accepted) = (verification.drafted(), verification.accepted());
        if drafted == 0 {
            return;
        }
        self.counters.draft_rows += drafted;
        let stats = &self.inbox.stats;
        if verification.is_forced {
            count(&stats.tokens_forced, accepted);
        } else {
            count(&stats.tokens_drafted, drafted);
            count(&stats.tokens_accepted, accepted);
            verification.record_progress();
        }
        let Some((sequence, request)) = self.table.pair_mut(key) else {
            return;
        };
        let fair_shares = &mut self.priority.fair_shares;
        fair_shares.charge(request.fair_share, DECODE_COST * accepted as u64);
        if !verification.is_forced {
            self.speculator.record_verified(sequence, drafted, accepted);
        }
        self.kv.trim(sequence);
    }
}

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
