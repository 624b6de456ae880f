//! The MTP head: a block after the model's last layer that proposes the token after the last one (multi-token prediction).
//!
//! The head reads the last token and the hidden state before it, and attends to keys and values of its own, which each pass of
//! the model writes for all tokens, in the pages of the model. So a sequence is never behind, whatever became of its prompt:
//! computed, found in the prefix cache, or shared.
//!
//! A failing head costs draft tokens, never an answer; after [`FAULTS_MAX`] failures the head is used no more.

use super::draft_model::{DraftPass, FAULTS_MAX, proposal_max, sample_draft};
use super::sequence_table::SequenceTable;
use crate::plan::Plan;
use crate::stats::{Stats, count};
use model::Want;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The scheduler's side of the MTP head.
pub(super) struct MtpHead {
    faults: u32,
    /// Whether the last step proposed nothing where a proposal was wanted: its time does not measure the cost of draft tokens.
    pub(super) is_behind: bool,
    /// Sequences that get proposals in this step; scratch.
    keys: Vec<usize>,
}

impl MtpHead {
    pub(super) fn new(sequences_max: usize) -> Self {
        Self {
            faults: 0,
            is_behind: false,
            keys: Vec::with_capacity(sequences_max),
        }
    }

    /// Whether the head is still used.
    pub(super) fn is_sound(&self) -> bool {
        self.faults < FAULTS_MAX
    }

    /// Proposes a draft token for each planned sequence that has room for one. `pass.model` is the model itself.
    pub(super) fn propose(
        &mut self,
        table: &mut SequenceTable,
        plan: &Plan,
        pass: DraftPass<'_>,
        stats: &Stats,
    ) {
        let DraftPass {
            model,
            batch,
            sampler,
        } = pass;
        self.keys.clear();
        batch.clear();
        let planned = plan.spans.iter().map(|span| span.key);
        for key in planned.filter(|&key| proposal_max(table, key) > 0) {
            let Some(sequence) = table.get(key) else {
                continue;
            };
            let position = sequence.tokens.len() - 1;
            let last = &sequence.tokens[position..];
            batch.push(last, position, &sequence.pages, Want::Last);
            batch.set_states(sequence.states.of_span(&(position..position + 1)));
            sequence.media.put_axes(batch);
            self.keys.push(key);
        }
        self.is_behind = !self.keys.is_empty();
        if self.keys.is_empty() {
            return;
        }
        let (vocab, batch) = (model.dims().vocab, &*batch);
        // Moves `model` in, so that the logits may outlive the call.
        let predict = move || {
            let model = model;
            let head = model.mtp_head();
            head.map(|head| head.predict(batch))
        };
        let logits = match catch_unwind(AssertUnwindSafe(predict)) {
            Ok(Some(Ok(logits))) if logits.len() == batch.logit_rows() * vocab => logits,
            _ => {
                count(&stats.draft_faults, 1);
                self.faults += 1;
                return;
            }
        };
        for (&key, row) in self.keys.iter().zip(logits.chunks_exact(vocab)) {
            if let Some((sequence, request)) = table.pair_mut(key) {
                sample_draft(sequence, request, row, sampler);
                self.is_behind &= sequence.drafts.tokens().is_empty();
            }
        }
    }
}
