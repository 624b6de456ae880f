//! Decode rows, the pages they are written to, and which sequence gives up pages where pages are short.

use super::Scheduler;
use crate::plan::PageCopy;
use crate::sequence::SequenceState;
use crate::stats::count;
use crate::submitted_request::SubmittedRequest;

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
        if let Some(draft_model) = self.speculator.draft_model_mut() {
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
