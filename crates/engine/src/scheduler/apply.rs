//! Results of a forward pass: computed positions, hidden states, and sampled tokens.

use super::Scheduler;
use crate::TopLogprob;
use crate::plan::PlannedSpan;
use crate::sampler::{Sampled, Sampler};
use crate::sequence::{Sequence, SequenceState};
use crate::speculation::Verification;
use crate::stats::count;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::{End, FailCode, Stop};

impl Scheduler {
    /// Accepts the positions of a span that were computed. `None`: the sequence has ended since.
    pub(crate) fn apply_positions(&mut self, span: &PlannedSpan) -> Option<Verification> {
        let (sequence, request) = self.table.pair_mut(span.key)?;
        let is_prefill = !sequence.is_decoding();
        sequence.computed = span.positions.end;
        self.kv.advance_state(sequence, 0);
        if is_prefill {
            let stats = &self.inbox.stats;
            count(&stats.prompt_tokens_computed, span.positions.len());
            if !request.has_token {
                let done = sequence.computed.min(request.prompt_tokens);
                request.progress.set_prompt_done(done);
            }
        }
        Some(self.begin_verification(span.key))
    }

    /// Accepts a row of finite logits, the `row`-th of the span: the row's position counts as computed, full
    /// pages are indexed, and with the first row of a request the other choices share the prompt. Writes the
    /// sequences that sample from the row into `keys`. Returns the row's draft token.
    pub(crate) fn apply_row(
        &mut self,
        key: usize,
        row: usize,
        keys: &mut Vec<usize>,
    ) -> Option<u32> {
        keys.clear();
        let sequence = self.table.get_mut(key)?;
        if row > 0 {
            sequence.computed += 1;
            self.kv.advance_state(sequence, row);
        }
        self.kv.index(sequence);
        let draft = sequence.drafts.tokens().get(row).copied();
        if sequence.generated() > 0 {
            keys.push(key);
            return draft;
        }
        let slot = sequence.slot;
        self.fork_prompt(key);
        // The sequence may have been parked while its row was in flight.
        let samples = |&(other, s): &(usize, &Sequence)| {
            let is_active = s.state == SequenceState::Active || other == key;
            s.slot == slot && s.generated() == 0 && is_active
        };
        keys.extend(self.table.live().filter(samples).map(|(key, _)| key));
        draft
    }

    /// Applies a sampled token to the sequence: appends the token to the log, or ends the choice. Returns the
    /// token if appended.
    pub(crate) fn apply(
        &mut self,
        key: usize,
        sampled: Sampled,
        alternatives: &[TopLogprob],
    ) -> Option<u32> {
        let token = match sampled {
            Sampled::Token(token) => Some(token),
            Sampled::NoToken => None,
            Sampled::Panicked => {
                self.fail(key, FailCode::Panic);
                return None;
            }
        };
        let now_ns = self.clock.now_ns();
        let (sequence, request) = self.table.pair_mut(key)?;
        let (before, had_token) = (sequence.generated(), request.has_token);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            sequence.accept_token(request, token, alternatives, now_ns)
        }));
        let appended = sequence.generated() - before;
        if request.has_token && !had_token {
            self.timestamps.add_first_token(request);
        }
        let token = sequence.tokens.last().filter(|_| appended > 0).copied();
        if appended > 0 && before > 0 {
            // Of tokens that come together only the first was waited for.
            let since_ns = (!sequence.got_token).then_some(sequence.waiting_since_ns);
            self.timestamps.add_token(request, since_ns);
        }
        sequence.got_token |= appended > 0;
        self.counters.tokens += appended;
        count(&self.inbox.stats.tokens_generated, appended);
        match outcome {
            Ok(None) => {}
            Ok(Some(End::Failed(code))) => self.fail(key, code),
            Ok(Some(end)) => self.end(key, end),
            Err(_) => self.fail(key, FailCode::Panic),
        }
        token
    }

    /// Accepts hidden states of a span that was computed for an embedding: rows of `dim` entries. After the
    /// last of them the sequence ends.
    pub(crate) fn apply_hidden(&mut self, span: &PlannedSpan, rows: &[f32], dim: usize) {
        let sequence = self.table.get_mut(span.key);
        let Some(pool) = sequence.and_then(|sequence| sequence.pool.as_mut()) else {
            return;
        };
        pool.add_rows(span.positions.start, rows, dim);
        match span.is_sampled.then(|| pool.finish()) {
            None => {}
            Some(Ok(())) => self.end(span.key, End::Stop(Stop::Eos)),
            Some(Err(code)) => self.fail(span.key, code),
        }
    }

    /// Whether the sequence under this key has not ended.
    pub(crate) fn is_live(&self, key: usize) -> bool {
        self.table.get(key).is_some()
    }

    /// Gives the other choices of a request the pages of the one that computed the prompt.
    fn fork_prompt(&mut self, leader: usize) {
        let Some(from) = self.table.take(leader) else {
            return;
        };
        for choice in self.table.sequences_mut() {
            if choice.slot == from.slot && choice.state == SequenceState::Forking {
                self.kv.fork(&from, choice);
            }
        }
        self.table.put_back(leader, from);
    }
}

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
