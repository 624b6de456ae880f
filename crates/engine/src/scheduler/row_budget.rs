//! The rows of a step: how many there are, and which sequences get them.
//!
//! Rows are given in three parts: decodes, prefill chunks, then verification rows of forced and draft
//! tokens from what is left. A sequence's rows are in [`Sequence::rows`] until the plan is written.

use super::Scheduler;
use super::priority::{PriorityPolicy, SchedulingPriority};
use super::sequence_table::SequenceTable;
use crate::StepFacts;
use crate::fair_share::{DECODE_COST, FairShareKey};
use crate::inbox::SubmittedRequest;
use crate::plan::{PageCopy, Plan, PlannedSpan};
use crate::sequence::{Sequence, SequenceState};
use crate::stats::count;
use crate::step_time::{LongSteps, StepClock, StepTimeModel};
use std::time::Duration;

/// Where there are more decoding sequences than rows, one row in `PREFILL_PART` is left to prefill.
const PREFILL_PART: usize = 8;

/// The limits of a step's rows, with the model of what they cost.
pub(super) struct RowBudget {
    rows_max: usize,
    logit_rows_max: usize,
    /// Whether a prompt gets all its rows in one step, or none.
    whole_prompts: bool,
    pub(super) step_time: StepTimeModel,
    long_steps: LongSteps,
    /// Whether the step that is planned, or was last, is long.
    is_long: bool,
    /// Decode rows given so far: numbers the turns.
    decode_rows_given: u64,
    /// Scratch of the selection.
    keys: Vec<usize>,
    candidates: Vec<DecodeCandidate>,
}

/// A decoding sequence where there are more of them than rows.
struct DecodeCandidate {
    priority: SchedulingPriority,
    fair_share: FairShareKey,
    /// Number of the sequence's last decode row, so that turns keep their order; 0 = none yet.
    last_row: u64,
    key: usize,
}

/// Rows that a step has left.
#[derive(Clone, Copy)]
struct RowsLeft {
    rows: usize,
    logit_rows: usize,
    whole_prompts: bool,
}

impl RowBudget {
    pub(super) fn new(
        rows_max: usize,
        logit_rows_max: usize,
        sequences_max: usize,
        step_target: Option<Duration>,
    ) -> Self {
        Self {
            rows_max,
            logit_rows_max,
            whole_prompts: false,
            step_time: StepTimeModel::new(step_target),
            long_steps: LongSteps::new(),
            is_long: false,
            decode_rows_given: 0,
            keys: Vec::with_capacity(sequences_max),
            candidates: Vec::with_capacity(sequences_max),
        }
    }

    /// This budget, for a model that cannot compute a prompt in parts.
    pub(super) fn with_whole_prompts(self, whole_prompts: bool) -> Self {
        Self {
            whole_prompts,
            ..self
        }
    }

    /// Learns from a finished step. The costs of a long step's rows are not those of the few rows beside decodes.
    pub(super) fn record_step(&mut self, facts: &StepFacts) {
        self.long_steps.record_tokens(facts.rows_decode);
        if !self.is_long {
            self.step_time
                .record_step(facts.rows_prefill, facts.rows_decode, facts.duration_ns);
        }
    }

    /// Gives a row to each decoding sequence; where there are too many, to those of the best priority.
    /// `prefill_waits`: prompts need rows too.
    pub(super) fn give_decode_rows(
        &mut self,
        table: &mut SequenceTable,
        prefill_waits: bool,
        policy: &PriorityPolicy,
        clock: StepClock,
    ) {
        let most = self.decodes_max(prefill_waits);
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let request = |s: &Sequence| table.request(s.slot);
        let decoding = table.live().filter(|(_, s)| {
            s.is_decoding() && request(s).is_some_and(|request| s.may_get_rows(request))
        });
        keys.extend(decoding.map(|(key, _)| key));
        if keys.len() > most {
            self.rank_decodes(&mut keys, table, policy, clock);
            keys.truncate(most);
        }
        for &key in &keys {
            if let Some(sequence) = table.get_mut(key) {
                self.decode_rows_given += 1;
                sequence.decode_number = self.decode_rows_given;
                sequence.rows = 1;
            }
        }
        self.keys = keys;
    }

    /// Rows that decodes may have.
    fn decodes_max(&self, prefill_waits: bool) -> usize {
        if !prefill_waits {
            return self.rows_max.min(self.logit_rows_max);
        }
        let prefill = (self.rows_max / PREFILL_PART).max(1);
        let rows = self.rows_max - prefill;
        // At least one: where only one sequence fits, the queue waits for the end of that sequence.
        rows.min(self.logit_rows_max - 1).max(1)
    }

    /// Sorts decoding sequences by priority.
    ///
    /// The order is that of giving rows one by one, each to the account with the lowest counter and there to
    /// the sequence that got no row for the longest time: the n-th row of an account in this step is ranked
    /// as if the account's counter were n prices higher.
    fn rank_decodes(
        &mut self,
        keys: &mut Vec<usize>,
        table: &SequenceTable,
        policy: &PriorityPolicy,
        clock: StepClock,
    ) {
        let candidates = &mut self.candidates;
        candidates.clear();
        candidates.extend(keys.drain(..).filter_map(|key| {
            let sequence = table.get(key)?;
            let fair_share = table.fair_share(sequence.slot);
            Some(DecodeCandidate {
                priority: policy.row_priority(fair_share, sequence, clock),
                fair_share,
                last_row: sequence.decode_number,
                key,
            })
        }));
        candidates.sort_unstable_by_key(|c| (c.fair_share, c.last_row, c.priority.age()));
        let mut rows_before = 0;
        for at in 1..candidates.len() {
            let fair_share = candidates[at].fair_share;
            rows_before = if fair_share == candidates[at - 1].fair_share {
                rows_before + 1
            } else {
                0
            };
            let price = policy.fair_shares.price(fair_share, DECODE_COST);
            candidates[at].priority.lower_by(rows_before * price);
        }
        candidates.sort_unstable_by_key(|c| c.priority);
        keys.extend(candidates.iter().map(|c| c.key));
    }

    /// Gives chunks to the sequences in prefill, from the rows that `decodes` leave and the time that is
    /// left beside them: half to the prompt of the best priority, the rest to the others by class and
    /// account, then shortest remainder first. In a long step, prompts get all their rows, or none.
    pub(super) fn give_prefill_rows(
        &mut self,
        table: &mut SequenceTable,
        decodes: usize,
        policy: &PriorityPolicy,
        clock: StepClock,
    ) {
        let keys = self.rank_prompts(table, policy, clock);
        let mut left = RowsLeft {
            rows: self.rows_max - decodes,
            logit_rows: self.logit_rows_max - decodes,
            whole_prompts: self.whole_prompts,
        };
        if !self.whole_prompts {
            self.limit_to_time(&mut left, &keys, table, decodes);
        }
        if let Some((&first, others)) = keys.split_first() {
            let half = if left.whole_prompts {
                left.rows
            } else {
                left.rows.div_ceil(2)
            };
            left.give_chunk(table.get_mut(first), half);
            for &key in others {
                left.give_chunk(table.get_mut(key), usize::MAX);
            }
            left.give_chunk(table.get_mut(first), usize::MAX);
        }
        self.keys = keys;
    }

    /// The keys of the sequences in prefill: the one of the best priority, then the others in the order in which they get
    /// rows. The buffer is to be returned to `keys`.
    fn rank_prompts(
        &mut self,
        table: &SequenceTable,
        policy: &PriorityPolicy,
        clock: StepClock,
    ) -> Vec<usize> {
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let prefilling = table.live();
        let prefilling = prefilling.filter(|(_, s)| s.is_prefilling() && s.rows_wanted() > 0);
        keys.extend(prefilling.map(|(key, _)| key));
        let priority = |sequence: &Sequence| {
            policy.row_priority(table.fair_share(sequence.slot), sequence, clock)
        };
        let by_priority = |&at: &usize| table.get(keys[at]).map(priority);
        if let Some(first) = (0..keys.len()).min_by_key(by_priority) {
            keys.swap(0, first);
            keys[1..].sort_unstable_by_key(|&key| {
                let sequence = table.get(key);
                sequence.map(|s| (priority(s).without_age(), s.uncomputed(), s.age))
            });
        }
        keys
    }

    /// Leaves the rows that fit the target, or those of a long step.
    fn limit_to_time(
        &mut self,
        left: &mut RowsLeft,
        keys: &[usize],
        table: &SequenceTable,
        decodes: usize,
    ) {
        let prompts = || keys.iter().filter_map(|&key| table.get(key));
        let is_resuming = prompts().any(Sequence::is_resumed);
        let in_time = self.step_time.prefill_rows(decodes, is_resuming);
        let mut whole = RowsLeft {
            whole_prompts: true,
            ..*left
        };
        let may_finish = prompts().filter(|s| s.rows_wanted() == s.uncomputed());
        let finished = may_finish.filter(|s| whole.take(s.uncomputed(), usize::MAX, true) > 0);
        let finished = finished.count();
        self.is_long = left.rows - whole.rows > in_time
            && self.step_time.fits_target(decodes + finished)
            && self.long_steps.take(decodes, finished);
        if self.is_long {
            left.whole_prompts = true;
        } else {
            left.rows = left.rows.min(in_time);
        }
    }

    /// Rows left for forced tokens, within the step's time.
    pub(super) fn forced_rows_left(&self, table: &SequenceTable) -> usize {
        let (mut rows, mut spans, mut decodes) = (0, 0, 0);
        for (_, sequence) in table.live().filter(|(_, s)| s.rows > 0) {
            rows += sequence.rows;
            spans += 1;
            decodes += usize::from(sequence.is_decoding());
        }
        let in_time = self.step_time.prefill_rows(decodes, false);
        let in_time = in_time.saturating_sub(rows - decodes);
        let left = self.rows_max - rows;
        left.min(self.logit_rows_max.saturating_sub(spans))
            .min(in_time)
    }

    /// Rows left for draft tokens in a step of this many decodes and forced tokens, without prefill.
    pub(super) fn draft_rows_left(&self, decodes: usize, forced: usize) -> usize {
        self.rows_max.min(self.logit_rows_max) - decodes - forced
    }

    /// Writes the spans of all sequences with rows, decodes first, and charges their accounts.
    pub(super) fn write_spans(
        &self,
        plan: &mut Plan,
        table: &mut SequenceTable,
        policy: &mut PriorityPolicy,
        clock: StepClock,
    ) {
        for decodes in [true, false] {
            let has_rows = |s: &Sequence| s.rows > 0 && s.is_decoding() == decodes;
            for (key, sequence) in table.live().filter(|(_, s)| has_rows(s)) {
                let positions = sequence.computed..sequence.computed + sequence.rows;
                let is_sampled = positions.end == sequence.tokens_expected();
                plan.spans.push(PlannedSpan {
                    key,
                    age: sequence.age,
                    positions,
                    is_sampled,
                });
            }
            if decodes {
                plan.decodes = plan.spans.len();
            }
        }
        let fair_shares = &mut policy.fair_shares;
        for (at, span) in plan.spans.iter().enumerate() {
            let Some((sequence, request)) = table.pair_mut(span.key) else {
                continue;
            };
            let charged = span.positions.len().min(sequence.uncharged);
            sequence.uncharged -= charged;
            fair_shares.charge_prefill(request.fair_share, charged);
            fair_shares.set_rows_given(request.fair_share, clock.now_ns());
            if at < plan.decodes {
                fair_shares.charge(request.fair_share, DECODE_COST);
            }
        }
        // A copy for a sequence that was preempted since is void.
        plan.copies.retain(|copy| {
            let owner = table.get(copy.key);
            owner.is_some_and(|s| s.pages.contains(&copy.to))
        });
    }
}

impl RowsLeft {
    /// Adds to a sequence's chunk.
    fn give_chunk(&mut self, sequence: Option<&mut Sequence>, most: usize) {
        let Some(sequence) = sequence else { return };
        let wanted = sequence.rows_wanted();
        let end = sequence.computed + sequence.rows + wanted;
        sequence.rows += self.take(wanted, most, end == sequence.tokens_expected());
    }

    /// Rows for a sequence that wants so many more. The last position of a sequence is left to a later step when the logits
    /// of that position would be one row too many.
    fn take(&mut self, wanted: usize, most: usize, is_end: bool) -> usize {
        let mut rows = wanted.min(most).min(self.rows);
        if self.whole_prompts && (rows < wanted || (is_end && self.logit_rows == 0)) {
            return 0;
        }
        if is_end && rows == wanted && rows > 0 {
            match self.logit_rows {
                0 => rows -= 1,
                _ => self.logit_rows -= 1,
            }
        }
        self.rows -= rows;
        rows
    }
}

impl Scheduler {
    /// Gives a row to each decoding sequence, as far as rows go, and the page that the row is written to.
    /// Returns the number of rows.
    pub(super) fn select_decodes(&mut self, copies: &mut Vec<PageCopy>) -> usize {
        let prefill_waits = self.queue.iter().any(SubmittedRequest::can_start)
            || self
                .table
                .live()
                .any(|(_, s)| s.is_prefilling() || s.state == SequenceState::Waiting);
        self.rows
            .give_decode_rows(&mut self.table, prefill_waits, &self.priority, self.clock);
        let mut keys = std::mem::take(&mut self.keys);
        self.list_keys_with_rows(&mut keys);
        if self.kv.available() < keys.len() {
            // Sequences that lose pages come after those that take them.
            keys.sort_unstable_by_key(|&key| {
                let sequence = self.table.get(key)?;
                let fair_share = self.table.fair_share(sequence.slot);
                let rank = |s| self.priority.eviction_rank(fair_share, s, self.clock);
                Some(rank(sequence))
            });
        }
        for &key in &keys {
            if self.table.get(key).is_some_and(|s| s.rows > 0) {
                self.extend_pages(key, copies);
            }
        }
        self.keys = keys;
        self.table.live().filter(|(_, s)| s.rows > 0).count()
    }

    /// Collects the keys of sequences with rows, by age.
    pub(super) fn list_keys_with_rows(&self, keys: &mut Vec<usize>) {
        keys.clear();
        let with_rows = self.table.live().filter(|(_, s)| s.rows > 0);
        keys.extend(with_rows.map(|(key, _)| key));
    }

    /// Allocates a page for a sequence's next position. Without a free page, sequences are preempted, this
    /// one possibly included.
    fn extend_pages(&mut self, key: usize, copies: &mut Vec<PageCopy>) {
        loop {
            let sequence = self.table.get_mut(key).expect("selected, so alive");
            if self.kv.extend(key, sequence, copies) {
                return;
            }
            let victim = self.next_victim(SequenceState::Parked);
            let victim = victim.or_else(|| self.next_victim(SequenceState::Active));
            let victim = victim.expect("a sequence that extends holds pages");
            self.preempt(victim);
            if victim == key {
                return;
            }
        }
    }
}

impl Scheduler {
    /// Takes a sequence's pages away, the draft model's included.
    pub(super) fn preempt(&mut self, key: usize) {
        let (sequence, request) = self
            .table
            .pair_mut(key)
            .expect("a live sequence is preempted");
        self.speculator.release(sequence);
        self.kv.preempt(sequence);
        self.blocks.forget(key);
        count(&self.inbox.stats.preemptions, 1);
        request.progress.add_preemption();
    }

    /// Takes the pages of all sequences, and forgets those of the prefix cache: their content is lost.
    pub(crate) fn lose_pages(&mut self) {
        for at in 0..self.table.order_len() {
            let key = self.table.key_at(at);
            if self.table.get(key).is_some_and(|s| !s.pages.is_empty()) {
                self.preempt(key);
            }
        }
        self.kv.pages.forget_cached();
        self.encodings.forget_current();
        self.blocks.forget_current();
        if let Some(draft_model) = &mut self.speculator.draft_model {
            draft_model.forget_cached();
        }
    }

    /// The sequence in this state that gives up pages first.
    pub(super) fn next_victim(&self, state: SequenceState) -> Option<usize> {
        let holders = self.table.in_state(state);
        let holders = holders.filter(|(_, s)| !s.pages.is_empty());
        let victim = holders.max_by_key(|(_, s)| {
            let fair_share = self.table.fair_share(s.slot);
            self.priority.eviction_rank(fair_share, s, self.clock)
        });
        victim.map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_leave_an_eighth_of_the_rows_to_waiting_prefill() {
        let budget = |rows_max, logit_rows_max| RowBudget::new(rows_max, logit_rows_max, 4, None);
        for (rows_max, logit_rows_max, alone, beside_prefill) in [
            (64, 64, 64, 56),
            (64, 16, 16, 15),
            (2, 2, 2, 1),
            (1, 1, 1, 1),
        ] {
            let budget = budget(rows_max, logit_rows_max);
            assert_eq!(budget.decodes_max(false), alone, "{rows_max} rows");
            assert_eq!(budget.decodes_max(true), beside_prefill, "{rows_max} rows");
        }
    }
}
