//! Guesses of a draft model: its passes, and its keys and values kept in step with the sequences.
//!
//! A sequence's [`Table`] counts the positions for which the draft model has keys and values of
//! the sequence's own tokens. Tokens are only ever appended, so those stay right whatever becomes
//! of the guesses: what is written for a guess counts once the guess was drawn, and is written
//! again otherwise. Who is behind (a new sequence, one whose prompt came from the prefix cache, one
//! that lost its table) catches up first, a part per step, and guesses when it has.
//!
//! The draft model's pages are its own. A sequence that finds none does without guesses; a table
//! is given back when its sequence ends or is preempted, and, where pages are short, while it is parked.
//!
//! A draft model that fails costs guesses, never an answer; after [`FAULTS_MAX`] failures it is left alone.

use super::{Scheduler, count};
use crate::pages::Pages;
use crate::plan::Plan;
use crate::sampler::{self, SampleContext, Sampler};
use crate::sequence::{Common, Sequence, State};
use crate::speculation::Table;
use model::{Batch, Dims, Forward, PageId, Want};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Positions that are caught up with in one step, all sequences together: a prompt of this length
/// costs a step about what a few tokens cost the large model.
const CATCH_UP_MAX: usize = 128;

/// After a step the draft model has not read the token drawn last, nor its own last guess if that
/// was right.
const USUALLY_UNREAD: usize = 2;

/// Failures of the draft model after which it is used no more.
const FAULTS_MAX: u32 = 8;

/// The draft model as the scheduler sees it.
pub(super) struct Small {
    dims: Dims,
    pub(super) pages: Pages,
    faults: u32,
    /// Whether the last step had rows to catch up, or asked for guesses in vain: its time says
    /// nothing of what guesses take.
    pub(super) behind: bool,
}

impl Small {
    pub(super) fn new(dims: Dims, prefix_cache: bool) -> Self {
        Self {
            dims,
            pages: Pages::new(&dims, prefix_cache),
            faults: 0,
            behind: false,
        }
    }

    pub(super) fn pages_used(&self) -> usize {
        self.pages.counts().used
    }
}

impl Scheduler {
    /// Pages of the draft model for a sequence's tokens and so many guesses. Returns for how many
    /// guesses there is room; where there is none at all, the table is given back.
    pub(super) fn reserve_small(&mut self, key: usize, guesses: usize) -> usize {
        let Some(mut sequence) = self.sequences[key].take() else {
            return 0;
        };
        let room = self.grow_table(&mut sequence, guesses);
        if room == 0 {
            self.release_small(&mut sequence.drafts.table);
        }
        self.sequences[key] = Some(sequence);
        room
    }

    fn grow_table(&mut self, sequence: &mut Sequence, guesses: usize) -> usize {
        let Some(small) = &mut self.small else {
            return 0;
        };
        // The last guess is not computed.
        let tokens = sequence.tokens.len();
        let guesses = guesses.min((small.dims.context_max + 1).saturating_sub(tokens));
        if guesses == 0 || small.faults >= FAULTS_MAX {
            return 0;
        }
        let table = &mut sequence.drafts.table;
        if table.pages.is_empty() {
            let known = &sequence.tokens[..tokens - 1];
            let (age, salt) = (sequence.age, sequence.salt);
            table.chain = small.pages.reuse(age, salt, known, &mut table.pages);
            table.indexed = table.pages.len();
            table.computed = table.indexed * small.pages.page_tokens();
        }
        let need = small.pages.pages_for(tokens + guesses - 1);
        while table.pages.len() < need {
            let Some(page) = self.take_small() else {
                break;
            };
            table.pages.push(page);
        }
        let small = self.small.as_ref();
        let held = small.map_or(0, |s| table.pages.len() * s.pages.page_tokens());
        guesses.min((held + 1).saturating_sub(tokens))
    }

    /// A page of the draft model, if need be from a sequence that is parked.
    fn take_small(&mut self) -> Option<PageId> {
        let small = self.small.as_mut()?;
        if let Some(page) = small.pages.take() {
            return Some(page);
        }
        let mut parked = self.sequences.iter_mut().flatten();
        let parked =
            parked.find(|s| s.state == State::Parked && !s.drafts.table.pages.is_empty())?;
        parked.drafts.table.release(&mut small.pages);
        small.pages.take()
    }

    /// Gives a table back.
    pub(super) fn release_small(&mut self, table: &mut Table) {
        if let Some(small) = &mut self.small {
            table.release(&mut small.pages);
        }
    }

    /// Lets the draft model guess for those who may: first it reads what it has not read of their
    /// tokens, then it goes on from guess to guess.
    pub(crate) fn propose(
        &mut self,
        plan: &Plan,
        model: &mut dyn Forward,
        batch: &mut Batch,
        sampler: &mut Sampler,
    ) {
        let Some(small) = &mut self.small else {
            return;
        };
        small.behind = false;
        let (mut left, most) = (
            CATCH_UP_MAX.min(small.dims.rows_max),
            small.dims.logit_rows_max,
        );
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let spans = plan.spans.iter().map(|span| span.key);
        keys.extend(spans.filter(|&key| self.most(key) > 0).take(most));
        // Who has little to read comes before who has much.
        keys.sort_unstable_by_key(|&key| self.sequences[key].as_ref().map(unread));
        batch.clear();
        keys.retain(|&key| {
            let rows = self.read(key, left, batch);
            left -= rows;
            rows > 0
        });
        let (mut depth, asked, mut any) = (0, !keys.is_empty(), false);
        while !keys.is_empty() && self.pass(&keys, model, batch, sampler) {
            depth += 1;
            keys.retain(|&key| {
                let guessed = self.sequences[key].as_ref();
                let guessed = guessed.map_or(0, |s| s.drafts.guessed().len());
                any |= guessed > 0;
                guessed == depth && depth < self.most(key)
            });
            batch.clear();
            keys.iter().for_each(|&key| self.put_guess(key, batch));
        }
        if let Some(small) = &mut self.small {
            small.behind |= asked && !any;
        }
        self.keys = keys;
    }

    fn most(&self, key: usize) -> usize {
        self.sequences[key].as_ref().map_or(0, |s| s.drafts.most)
    }

    /// Puts what a sequence has unread into the batch, as far as rows go. Returns how many it took.
    fn read(&mut self, key: usize, rows_left: usize, batch: &mut Batch) -> usize {
        let (Some(sequence), Some(small)) = (&mut self.sequences[key], &mut self.small) else {
            return 0;
        };
        let rows = unread(sequence).min(rows_left);
        small.behind |= rows > USUALLY_UNREAD;
        let table = &mut sequence.drafts.table;
        let tokens = &sequence.tokens[table.computed..][..rows];
        let whole = table.computed + rows == sequence.tokens.len();
        let want = if whole { Want::Last } else { Want::None };
        if rows > 0 {
            batch.push(tokens, table.computed, &table.pages, want);
        }
        table.computed += rows;
        rows
    }

    /// Puts a sequence's last guess into the batch.
    fn put_guess(&mut self, key: usize, batch: &mut Batch) {
        let Some(sequence) = &self.sequences[key] else {
            return;
        };
        let guessed = sequence.drafts.guessed();
        let position = sequence.tokens.len() + guessed.len() - 1;
        let last = &guessed[guessed.len() - 1..];
        batch.push(last, position, &sequence.drafts.table.pages, Want::Last);
    }

    /// One pass of the draft model, and a guess for each whose tokens it has read. Returns whether
    /// it went well.
    fn pass(
        &mut self,
        keys: &[usize],
        model: &mut dyn Forward,
        batch: &Batch,
        sampler: &mut Sampler,
    ) -> bool {
        let vocab = model.dims().vocab;
        // Moves `model` in, so that the logits may outlive the call.
        let forward = move || {
            let model = model;
            model.forward(batch)
        };
        let logits = match catch_unwind(AssertUnwindSafe(forward)) {
            Ok(Ok(logits)) if logits.len() == batch.logit_rows() * vocab => logits,
            _ => {
                self.small_failed(keys);
                return false;
            }
        };
        let mut rows = logits.chunks_exact(vocab);
        for &key in keys {
            let (Some(sequence), Some(small)) = (&mut self.sequences[key], &mut self.small) else {
                continue;
            };
            let (table, tokens) = (&mut sequence.drafts.table, &sequence.tokens);
            table.index(tokens, &mut small.pages);
            if table.computed == tokens.len()
                && let Some(row) = rows.next()
                && let Some(common) = &self.requests[sequence.slot]
            {
                guess(sequence, common, row, sampler);
            }
        }
        true
    }

    /// What a failed pass wrote is not known: those who were in it begin anew.
    fn small_failed(&mut self, keys: &[usize]) {
        count(&self.inbox.stats.draft_faults, 1);
        let Some(small) = &mut self.small else {
            return;
        };
        small.faults += 1;
        small.behind = true;
        for &key in keys {
            if let Some(sequence) = &mut self.sequences[key] {
                sequence.drafts.run.clear();
                sequence.drafts.table.release(&mut small.pages);
            }
        }
    }
}

/// Positions of a sequence's tokens for which the draft model has no keys and values.
fn unread(sequence: &Sequence) -> usize {
    sequence.tokens.len() - sequence.drafts.table.computed
}

/// Draws a guess as the token itself will be drawn, with the same random number, but for the
/// constraint: that only knows what may follow the tokens that are there.
fn guess(sequence: &mut Sequence, common: &Common, logits: &[f32], sampler: &mut Sampler) {
    if !sampler::is_sound(logits) {
        return;
    }
    let asked = sequence.asked_tokens(&common.sampling);
    let (tokens, run) = (&mut sequence.tokens, &mut sequence.drafts.run);
    let known = tokens.len();
    let last = tokens[known - 1];
    tokens.extend(run.iter().skip(1));
    let drawn = sampler.guess(
        logits,
        SampleContext {
            sampling: &common.sampling,
            tokens,
            prompt_tokens: asked,
            choice: sequence.age.1,
            eos: &common.eos,
            constraint: None,
        },
    );
    tokens.truncate(known);
    // What follows an end is never drawn; the end itself is drawn from the row before it.
    let ends = |token: &u32| !common.sampling.ignore_eos && common.eos.contains(token);
    if let Some(token) = drawn.filter(|token| !ends(token)) {
        if run.is_empty() {
            run.push(last);
        }
        run.push(token);
    }
}
