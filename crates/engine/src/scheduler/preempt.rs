//! Preemption: which sequence gives up pages where pages are short.

use super::Scheduler;
use crate::sequence::SequenceState;
use crate::stats::count;

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
