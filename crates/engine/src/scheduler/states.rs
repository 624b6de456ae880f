//! States of sequences, in a model with recurrent layers: taken for each pass, kept as checkpoints, given back.
//!
//! A pass reads a sequence's state and writes the next one elsewhere. So a failed pass is tried again from the state before,
//! choices share the state of their prompt, and a state becomes a checkpoint without being copied. A sequence needs two
//! states, the one that is read and the one that is written: there are two for each sequence that may be in the
//! engine ([`crate::states`]), and the rest is for checkpoints and draft tokens.
//!
//! A pass that verifies draft tokens also writes the states after the rows before its last. The state after the last accepted
//! row becomes the sequence's, and the others are free again in the same step. Where none is free, draft tokens take the
//! least recently used checkpoints, at most half of the rest in all ([`KvCache::drafted_max`]).

use super::Scheduler;
use super::kv_cache::KvCache;
use crate::plan::Plan;
use crate::sequence::{Sequence, SequenceStates};
use std::ops::Range;

impl Scheduler {
    /// Takes the states that the planned spans write, then those for checkpoints.
    pub(super) fn reserve_states(&mut self, plan: &Plan) {
        if !self.kv.is_recurrent() {
            return;
        }
        for span in &plan.spans {
            if let Some(sequence) = self.table.get_mut(span.key) {
                self.kv.reserve_state(sequence);
            }
        }
        for span in &plan.spans {
            if let Some(sequence) = self.table.get_mut(span.key) {
                self.kv.reserve_checkpoints(sequence, &span.positions);
            }
        }
    }
}

impl KvCache {
    /// Takes the state that a sequence's pass writes.
    fn reserve_state(&mut self, sequence: &mut Sequence) {
        let next = &mut sequence.states.next;
        if next.is_none() {
            *next = self.pages.states.take();
            debug_assert!(next.is_some(), "two states for each sequence");
        }
    }

    /// Takes the states that a pass over these positions leaves for checkpoints, as far as there are any.
    fn reserve_checkpoints(&mut self, sequence: &mut Sequence, positions: &Range<usize>) {
        for place in sequence.states.places_inside(positions) {
            if self.has_spare_state() {
                *place = self.pages.states.take();
                self.kept += usize::from(place.is_some());
            }
        }
    }

    /// Takes the states between `drafts` draft tokens. Returns for how many there are some: for all in a model without.
    pub(super) fn reserve_draft_states(&mut self, sequence: &mut Sequence, drafts: usize) -> usize {
        if !self.is_recurrent() {
            return drafts;
        }
        let mut reserved = 0;
        for place in sequence.states.draft_places().take(drafts) {
            let may_take = self.drafted < self.drafted_max() && self.has_spare_state();
            if place.is_none() && may_take {
                *place = self.pages.states.take();
                self.drafted += usize::from(place.is_some());
            }
            if place.is_none() {
                break;
            }
            reserved += 1;
        }
        reserved
    }

    /// Gives the states between draft tokens back, after the verification.
    pub(super) fn release_draft_states(&mut self, sequence: &mut Sequence) {
        for state in sequence.states.take_drafted() {
            self.pages.states.release(state);
            self.drafted -= 1;
        }
    }

    /// Takes a reference to the checkpoint at the end of the reused pages, and chooses where checkpoints are to be made.
    pub(super) fn reuse_state(&mut self, sequence: &mut Sequence) {
        if !self.is_recurrent() {
            return;
        }
        let last = sequence.pages.last();
        let state = last.and_then(|&page| self.pages.states.checkpoint(page));
        if let Some(state) = state {
            self.pages.states.share(state);
        }
        sequence.states.current = state;
        // Pages of an embedding are not indexed.
        if self.pages.has_prefix_cache() && sequence.pool.is_none() {
            let page_tokens = self.pages.page_tokens();
            let before = [sequence.pages.len(), self.pages.pages_found()];
            let [computed, known] = before.map(|pages| pages * page_tokens);
            let tokens = sequence.tokens.len();
            sequence
                .states
                .choose_cuts((computed, known), tokens, page_tokens);
        }
    }

    /// Replaces a sequence's state by the one that the pass has written after the computed positions, of which row `row` of
    /// the span's verification is the last.
    pub(super) fn advance_state(&mut self, sequence: &mut Sequence, row: usize) {
        let drafts = sequence.drafts.tokens().len();
        let Some(next) = sequence.states.take_written(row, drafts) else {
            return;
        };
        self.drafted -= usize::from(row < drafts);
        if let Some(before) = sequence.states.current.replace(next) {
            self.pages.states.release(before);
        }
        if self.has_spare_state()
            && let Some(place) = sequence.states.place_at(sequence.computed)
        {
            self.pages.states.share(next);
            *place = Some(next);
            self.kept += 1;
        }
    }

    /// Makes the states at the ends of indexed pages checkpoints.
    pub(super) fn keep_checkpoints(&mut self, sequence: &mut Sequence) {
        let page_tokens = self.pages.page_tokens();
        let (indexed, pages) = (sequence.indexed * page_tokens, &sequence.pages);
        let page_before = |position: usize| pages[position / page_tokens - 1];
        for (cut, state) in sequence.states.take_kept(indexed) {
            self.pages.keep_state(page_before(cut), state);
            self.pages.states.release(state);
            self.kept -= 1;
        }
        if sequence.computed == indexed
            && SequenceStates::is_regular_cut(indexed, page_tokens)
            && let Some(state) = sequence.states.current
        {
            self.pages.keep_state(page_before(indexed), state);
        }
    }

    /// Gives all states of a sequence back.
    pub(super) fn release_states(&mut self, sequence: &mut Sequence) {
        let states = std::mem::take(&mut sequence.states);
        self.kept -= states.kept();
        self.drafted -= states.drafted();
        states
            .held()
            .for_each(|state| self.pages.states.release(state));
    }
}
