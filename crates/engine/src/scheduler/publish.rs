//! How things stand, for those who look from other threads.

use super::Scheduler;
use super::propose::Small;
use crate::sequence::{State, Still};
use std::sync::atomic::{AtomicU64, Ordering};

impl Scheduler {
    /// Writes the gauges.
    pub(crate) fn publish(&self) {
        let stats = &self.inbox.stats;
        let pages = self.pages.counts();
        let (mut running, mut parked, mut paused, mut waiting) = (0, 0, 0, 0);
        for (_, sequence) in self.live() {
            match sequence.state {
                State::Active | State::Forking => running += 1,
                State::Parked if sequence.stalls() => parked += 1,
                State::Parked if sequence.still == Still::Place => waiting += 1,
                State::Parked => paused += 1,
                State::Waiting => waiting += 1,
            }
        }
        set(&stats.queued, self.inbox.queued());
        set(&stats.running, running);
        set(&stats.parked, parked);
        set(&stats.paused, paused);
        set(&stats.waiting, waiting);
        set(&stats.pages_free, pages.free);
        set(&stats.pages_used, pages.used);
        set(&stats.pages_cached, pages.cached);
        let small = self.small.as_ref().map_or(0, Small::pages_used);
        set(&stats.draft_pages_used, small);
    }
}

fn set(gauge: &AtomicU64, to: usize) {
    gauge.store(to as u64, Ordering::Relaxed);
}
