//! The draft model: proposals, and the draft model's keys and values, kept in step with the sequences.
//!
//! A sequence's [`crate::speculation::DraftPageTable`] counts the positions for which the draft model has keys and
//! values of the sequence's own tokens. Tokens are only ever appended, so those positions stay valid whatever becomes
//! of the draft tokens: a position written for a draft token counts once the token is accepted, and is written again
//! otherwise. A sequence that is behind (a new one, one whose prompt came from the prefix cache, one whose table was
//! released) catches up first, a part per step, and gets draft tokens after that.
//!
//! The draft model has separate pages. A sequence that finds no free page goes without draft tokens; a table
//! is released when the sequence ends or is preempted and, where pages are short, while the sequence is
//! parked.
//!
//! A failing draft model costs draft tokens, never an answer; after [`FAULTS_MAX`] failures the draft model is
//! used no more.

use super::sequence_table::SequenceTable;
use crate::pages::Pages;
use crate::plan::Plan;
use crate::request_state::RequestState;
use crate::sampler::{SampleContext, Sampler};
use crate::sequence::{Sequence, SequenceState};
use crate::stats::{Stats, count};
use model::{Batch, Dims, Forward, PageId, Want};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Positions caught up with in one step, all sequences together: a prompt of this length
/// costs a step about as much as a few tokens cost the large model.
const CATCH_UP_MAX: usize = 128;

/// Positions that a sequence in step has not computed: the last sampled token, and the last draft token
/// if that was accepted.
const UNREAD_IN_STEP: usize = 2;

/// Failures after which a draft model or an MTP head is used no more.
pub(super) const FAULTS_MAX: u32 = 8;

/// The scheduler's side of the draft model.
pub(super) struct DraftModel {
    dims: Dims,
    pages: Pages,
    faults: u32,
    /// Whether the last step caught up with positions, or proposed nothing where a proposal was wanted: the
    /// time of such a step does not measure the cost of draft tokens.
    pub(super) is_behind: bool,
    /// Sequences that get proposals in this step; scratch.
    keys: Vec<usize>,
}

/// A forward pass that proposes draft tokens, and the buffers of the pass.
pub(crate) struct DraftPass<'a> {
    pub(crate) model: &'a mut dyn Forward,
    pub(crate) batch: &'a mut Batch,
    pub(crate) sampler: &'a mut Sampler,
}

impl DraftModel {
    pub(super) fn new(dims: Dims, prefix_cache: bool, sequences_max: usize) -> Self {
        Self {
            dims,
            pages: Pages::new(&dims, prefix_cache),
            faults: 0,
            is_behind: false,
            keys: Vec::with_capacity(sequences_max),
        }
    }

    pub(super) fn pages_used(&self) -> usize {
        self.pages.counts().used
    }

    /// Forgets the pages of the prefix cache.
    pub(super) fn forget_cached(&mut self) {
        self.pages.forget_cached();
    }

    /// Gives a sequence's table back.
    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        sequence.drafts.table.release(&mut self.pages);
    }

    /// Takes pages for a sequence's tokens and for `drafts` draft tokens. Returns for how many draft tokens
    /// there are pages; where there are none at all, the table is given back.
    pub(super) fn reserve(
        &mut self,
        table: &mut SequenceTable,
        key: usize,
        drafts: usize,
    ) -> usize {
        let Some(mut sequence) = table.take(key) else {
            return 0;
        };
        let reserved = self.grow_table(table, &mut sequence, drafts);
        if reserved == 0 {
            self.release(&mut sequence);
        }
        table.put_back(key, sequence);
        reserved
    }

    fn grow_table(
        &mut self,
        others: &mut SequenceTable,
        sequence: &mut Sequence,
        drafts: usize,
    ) -> usize {
        // The last draft token is not computed.
        let tokens = sequence.tokens.len();
        let drafts = drafts.min((self.dims.context_max + 1).saturating_sub(tokens));
        if drafts == 0 || self.faults >= FAULTS_MAX {
            return 0;
        }
        let table = &mut sequence.drafts.table;
        if table.pages.is_empty() {
            let known = &sequence.tokens[..tokens - 1];
            // The draft model has no adapters.
            let (age, salt) = (sequence.age, sequence.root.salt);
            table.chain = self.pages.reuse(age, salt, known, &mut table.pages);
            table.indexed = table.pages.len();
            table.computed = table.indexed * self.pages.page_tokens();
        }
        let need = self.pages.pages_for(tokens + drafts - 1);
        while table.pages.len() < need {
            let Some(page) = self.take_page(others) else {
                break;
            };
            table.pages.push(page);
        }
        let held = table.pages.len() * self.pages.page_tokens();
        drafts.min((held + 1).saturating_sub(tokens))
    }

    /// A page, if need be from a parked sequence.
    fn take_page(&mut self, others: &mut SequenceTable) -> Option<PageId> {
        if let Some(page) = self.pages.take() {
            return Some(page);
        }
        let mut parked = others
            .sequences_mut()
            .filter(|s| s.state == SequenceState::Parked);
        let holder = parked.find(|s| !s.drafts.table.pages.is_empty())?;
        holder.drafts.table.release(&mut self.pages);
        self.pages.take()
    }

    /// Proposes draft tokens for the planned sequences that have room for some: computes their unread tokens
    /// first, then one draft token after the other.
    pub(super) fn propose(
        &mut self,
        table: &mut SequenceTable,
        plan: &Plan,
        mut pass: DraftPass<'_>,
        stats: &Stats,
    ) {
        self.is_behind = false;
        let mut rows_left = CATCH_UP_MAX.min(self.dims.rows_max);
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let planned = plan.spans.iter().map(|span| span.key);
        let wanted = planned.filter(|&key| proposal_max(table, key) > 0);
        keys.extend(wanted.take(self.dims.logit_rows_max));
        // Short catch-ups come before long ones.
        keys.sort_unstable_by_key(|&key| table.get(key).map(unread));
        pass.batch.clear();
        keys.retain(|&key| {
            let rows = self.read(table, key, rows_left, pass.batch);
            rows_left -= rows;
            rows > 0
        });
        let (mut depth, wanted, mut any) = (0, !keys.is_empty(), false);
        while !keys.is_empty() && self.run_pass(table, &keys, &mut pass, stats) {
            depth += 1;
            keys.retain(|&key| {
                let proposed = table.get(key).map_or(0, |s| s.drafts.tokens().len());
                any |= proposed > 0;
                proposed == depth && depth < proposal_max(table, key)
            });
            pass.batch.clear();
            keys.iter()
                .for_each(|&key| self.read_last_draft(table, key, pass.batch));
        }
        self.is_behind |= wanted && !any;
        self.keys = keys;
    }

    /// Puts a sequence's unread tokens into the batch, as far as rows go. Returns how many.
    fn read(
        &mut self,
        table: &mut SequenceTable,
        key: usize,
        rows_left: usize,
        batch: &mut Batch,
    ) -> usize {
        let Some(sequence) = table.get_mut(key) else {
            return 0;
        };
        let rows = unread(sequence).min(rows_left);
        self.is_behind |= rows > UNREAD_IN_STEP;
        let blocks = &mut sequence.drafts.table;
        let tokens = &sequence.tokens[blocks.computed..][..rows];
        let is_all = blocks.computed + rows == sequence.tokens.len();
        let want = if is_all { Want::Last } else { Want::None };
        if rows > 0 {
            batch.push(tokens, blocks.computed, &blocks.pages, want);
        }
        blocks.computed += rows;
        rows
    }

    /// Puts a sequence's last draft token into the batch.
    fn read_last_draft(&self, table: &SequenceTable, key: usize, batch: &mut Batch) {
        let Some(sequence) = table.get(key) else {
            return;
        };
        let drafts = sequence.drafts.tokens();
        let position = sequence.tokens.len() + drafts.len() - 1;
        let last = &drafts[drafts.len() - 1..];
        batch.push(last, position, &sequence.drafts.table.pages, Want::Last);
    }

    /// Runs one pass, which gives a draft token to each sequence without unread tokens. Returns whether the
    /// pass succeeded.
    fn run_pass(
        &mut self,
        table: &mut SequenceTable,
        keys: &[usize],
        pass: &mut DraftPass<'_>,
        stats: &Stats,
    ) -> bool {
        let (model, batch) = (&mut *pass.model, &*pass.batch);
        let vocab = model.dims().vocab;
        // Moves `model` in, so that the logits may outlive the call.
        let forward = move || {
            let model = model;
            model.forward(batch)
        };
        let logits = match catch_unwind(AssertUnwindSafe(forward)) {
            Ok(Ok(logits)) if logits.len() == batch.logit_rows() * vocab => logits,
            _ => {
                count(&stats.draft_faults, 1);
                self.record_fault(table, keys);
                return false;
            }
        };
        let mut rows = logits.chunks_exact(vocab);
        for &key in keys {
            let Some((sequence, request)) = table.pair_mut(key) else {
                continue;
            };
            let (blocks, tokens) = (&mut sequence.drafts.table, &sequence.tokens);
            blocks.index(tokens, &mut self.pages);
            if blocks.computed == tokens.len()
                && let Some(row) = rows.next()
            {
                sample_draft(sequence, request, row, pass.sampler);
            }
        }
        true
    }

    /// Drops the tables of the sequences in a failed pass: the keys and values of the pass are undefined.
    fn record_fault(&mut self, table: &mut SequenceTable, keys: &[usize]) {
        self.faults += 1;
        self.is_behind = true;
        for &key in keys {
            if let Some(sequence) = table.get_mut(key) {
                sequence.drafts.truncate(0);
                self.release(sequence);
            }
        }
    }

    /// Panics unless pages are conserved and no table is ahead of the sequence.
    pub(super) fn check<'a>(&mut self, sequences: impl Iterator<Item = &'a Sequence> + Clone) {
        for sequence in sequences.clone() {
            let table = &sequence.drafts.table;
            let held = table.pages.len() * self.pages.page_tokens();
            assert!(
                table.computed <= sequence.tokens.len().min(held),
                "the draft model is ahead of the tokens or the pages"
            );
        }
        self.pages
            .check(sequences.map(|s| &s.drafts.table.pages[..]));
    }
}

/// Draft tokens that a sequence may get in this step.
pub(super) fn proposal_max(table: &SequenceTable, key: usize) -> usize {
    table.get(key).map_or(0, |s| s.drafts.proposal_max)
}

/// Positions of a sequence's tokens for which the draft model has no keys and values.
fn unread(sequence: &Sequence) -> usize {
    sequence.tokens.len() - sequence.drafts.table.computed
}

/// Samples a draft token as the sampler will sample the token at that position, with the same random number,
/// but without the constraint: the constraint's state covers only the tokens already accepted.
pub(super) fn sample_draft(
    sequence: &mut Sequence,
    request: &RequestState,
    logits: &[f32],
    sampler: &mut Sampler,
) {
    if !sampler.is_sound(logits) {
        return;
    }
    let prompt_tokens = sequence.sampler_prompt_tokens(&request.sampling);
    let (tokens, drafts) = (&mut sequence.tokens, &mut sequence.drafts);
    let known = tokens.len();
    let last = tokens[known - 1];
    tokens.extend(drafts.tokens());
    let sampled = sampler.sample_id(
        logits,
        SampleContext {
            sampling: &request.sampling,
            tokens,
            prompt_tokens,
            choice: sequence.choice,
            eos: &request.eos,
            constraint: None,
        },
    );
    tokens.truncate(known);
    // Draft tokens after an end token are useless; the end token is sampled from the preceding row.
    let ends = |token: &u32| !request.sampling.ignore_eos && request.eos.contains(token);
    if let Some(token) = sampled.filter(|token| !ends(token)) {
        drafts.push(last, token);
    }
}
