//! Invariants that hold after every step.

use super::Scheduler;
use crate::sequence::SequenceState;

impl Scheduler {
    /// Panics unless each owner's state is consistent, pages are conserved, and accounts have the demand of the
    /// queued requests and running sequences.
    pub(crate) fn check(&mut self) {
        let sequences = self.table.live().map(|(_, sequence)| sequence);
        self.kv.check(sequences.clone());
        if let Some(draft_model) = self.speculator.draft_model_mut() {
            draft_model.check(sequences);
        }
        self.table.check();
        self.queue.check();
        self.check_fair_shares();
    }

    fn check_fair_shares(&self) {
        let requests = self.queue.len() + self.table.requests().count();
        let queued = self.queue.iter().filter(|r| !r.state.paused).count();
        let live = self.table.live();
        let running = live.filter(|(_, s)| s.state != SequenceState::Parked);
        let uncharged = self.table.live().map(|(_, s)| s.uncharged as u64).sum();
        assert_eq!(
            self.priority.fair_shares().totals(),
            (requests, queued + running.count(), uncharged),
            "requests, demand and uncharged tokens of accounts"
        );
    }
}
