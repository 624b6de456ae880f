//! What a forward pass gave: positions that exist now, and tokens.

use super::draft::Verified;
use super::{Scheduler, Stamp, count};
use crate::Progress;
use crate::plan::Planned;
use crate::sampler::{self, Sampler};
use crate::sequence::{Sequence, State};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::ChunksExact;
use std::sync::Arc;
use stream::{End, FailCode, Stop};

/// A token that was not its choice's first, of a request.
pub(super) struct Awaited {
    /// Since when it was awaited; the end of time for one that came together with the one before.
    pub(super) since_ns: u64,
    pub(super) progress: Arc<Progress>,
}

impl Scheduler {
    /// Takes a span whose positions were computed, with the logits of those of its rows for which
    /// they were asked: none, its last one, or all of a run. `vocab` is a row's length.
    pub(crate) fn apply(
        &mut self,
        span: &Planned,
        logits: &[f32],
        vocab: usize,
        sampler: &mut Sampler,
    ) {
        let Some(sequence) = &mut self.sequences[span.key] else {
            return;
        };
        let prefilled = !sequence.decodes();
        sequence.computed = span.positions.end;
        if prefilled {
            count(
                &self.inbox.stats.prompt_tokens_computed,
                span.positions.len(),
            );
            self.report_prefill(span.key);
        }
        self.draw(span.key, logits.chunks_exact(vocab), sampler);
    }

    /// Takes the hidden states of a span whose positions were computed, where they were asked for: rows of
    /// `dim` entries. After the last of them the sequence ends.
    pub(crate) fn apply_hidden(&mut self, span: &Planned, rows: &[f32], dim: usize) {
        let sequence = self.sequences[span.key].as_mut();
        let Some(pool) = sequence.and_then(|sequence| sequence.pool.as_mut()) else {
            return;
        };
        pool.take(span.positions.start, rows, dim);
        match span.draws.then(|| pool.finish()) {
            None => {}
            Some(Ok(())) => self.end(span.key, End::Stop(Stop::Eos)),
            Some(Err(code)) => self.fail(span.key, code),
        }
    }

    /// Draws a token from the first row, and one from each further row as long as the token before
    /// it was the one that was guessed.
    fn draw(&mut self, key: usize, rows: ChunksExact<'_, f32>, sampler: &mut Sampler) {
        let Some(sequence) = &self.sequences[key] else {
            return;
        };
        let mut run = Verified {
            forced: sequence.drafts.forced,
            drafted: sequence.drafts.guessed().len(),
            accepted: 0,
        };
        let common = self.requests[sequence.slot].as_ref();
        let progress = common.map(|common| Arc::clone(&common.progress));
        for (at, logits) in rows.enumerate() {
            if !sampler::is_sound(logits) {
                self.fail(key, FailCode::NotFinite);
                break;
            }
            let guess = self.sequences[key].as_mut().and_then(|sequence| {
                sequence.computed += usize::from(at > 0);
                sequence.drafts.guessed().get(at).copied()
            });
            let drawn = self.grow(key, logits, sampler);
            let right = guess.is_some() && drawn == guess;
            run.accepted += usize::from(right);
            if !right || self.sequences[key].is_none() {
                break;
            }
        }
        if let Some(progress) = progress.filter(|_| run.drafted > 0) {
            self.verified(key, &progress, &run);
        }
    }

    /// Only now, that its logits are known to be sound, is a sequence's content made known to
    /// others: what a broken pass left behind is never reused.
    /// Returns the token that was appended to it.
    fn grow(&mut self, key: usize, logits: &[f32], sampler: &mut Sampler) -> Option<u32> {
        self.index(key);
        let first = self.sequences[key].as_ref().is_some_and(|s| s.own() == 0);
        if !first {
            return self.advance(key, logits, sampler);
        }
        let slot = self.sequences[key].as_ref().map(|s| s.slot);
        self.fork(key);
        for at in 0..self.order.len() {
            let choice = self.order[at];
            let s = self.sequences[choice].as_ref();
            if s.is_some_and(|s| Some(s.slot) == slot && s.own() == 0 && s.state == State::Active) {
                self.advance(choice, logits, sampler);
            }
        }
        None
    }

    /// Draws and appends one token; ends who is done, and whose caller's code panicked. Returns the
    /// token that was appended.
    fn advance(&mut self, key: usize, logits: &[f32], sampler: &mut Sampler) -> Option<u32> {
        let sequence = self.sequences[key].as_mut()?;
        let common = self.requests[sequence.slot].as_mut()?;
        let (before, had_token) = (sequence.own(), common.has_token);
        common.now_ns = self.now_ns;
        let advance = AssertUnwindSafe(|| sequence.advance(common, logits, sampler));
        let outcome = catch_unwind(advance);
        let appended = sequence.own() - before;
        if common.has_token && !had_token {
            self.stamps.push(Stamp::FirstToken {
                id: common.id,
                progress: Arc::clone(&common.progress),
                since_ns: common.since_ns,
            });
        }
        let token = sequence.tokens.last().filter(|_| appended > 0).copied();
        if appended > 0 && before > 0 {
            // Of tokens that come together only the first was waited for.
            let since_ns = if sequence.fresh {
                u64::MAX
            } else {
                sequence.waits_ns
            };
            let progress = Arc::clone(&common.progress);
            self.awaited.push(Awaited { since_ns, progress });
        }
        sequence.fresh |= appended > 0;
        self.tokens += appended;
        count(&self.inbox.stats.tokens_generated, appended);
        match outcome {
            Ok(None) => {}
            Ok(Some(End::Failed(code))) => self.fail(key, code),
            Ok(Some(end)) => self.end(key, end),
            Err(_) => self.fail(key, FailCode::Panic),
        }
        token
    }

    /// Gives the other choices of a request the pages of the one that computed the prompt.
    fn fork(&mut self, leader: usize) {
        let Some(from) = self.sequences[leader].take() else {
            return;
        };
        for sequence in self.sequences.iter_mut().flatten() {
            if sequence.slot == from.slot && sequence.state == State::Forking {
                share(&from, sequence);
                from.pages.iter().for_each(|&page| self.pages.share(page));
            }
        }
        self.sequences[leader] = Some(from);
    }

    /// Makes a sequence's full pages known by their content.
    fn index(&mut self, key: usize) {
        let Some(sequence) = &mut self.sequences[key] else {
            return;
        };
        let page_tokens = self.pages.page_tokens();
        while (sequence.indexed + 1) * page_tokens <= sequence.computed {
            let at = sequence.indexed;
            let content = &sequence.tokens[at * page_tokens..][..page_tokens];
            let (page, chain) = self
                .pages
                .index(sequence.pages[at], sequence.chain, content);
            sequence.pages[at] = page;
            sequence.chain = chain;
            sequence.indexed += 1;
        }
    }

    fn report_prefill(&self, key: usize) {
        let Some(sequence) = &self.sequences[key] else {
            return;
        };
        if let Some(common) = &self.requests[sequence.slot]
            && !common.has_token
        {
            common
                .progress
                .set_prompt_done(sequence.computed.min(common.prompt_tokens));
        }
    }
}

/// The same tokens at the same places: a table of shared pages.
fn share(from: &Sequence, to: &mut Sequence) {
    to.pages.extend_from_slice(&from.pages);
    to.state = State::Active;
    to.computed = from.computed;
    to.indexed = from.indexed;
    to.chain = from.chain;
}
