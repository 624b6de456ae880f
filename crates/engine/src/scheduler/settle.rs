//! Who stands still, and who goes on.

use super::{Scheduler, count};
use crate::inbox::Door;
use crate::sequence::{State, Still, Told};
use crate::{Phase, Transition, Why};
use std::sync::Arc;

impl Scheduler {
    /// Hears who was asked to stand still. When nobody is left who could say otherwise, nobody does.
    pub(super) fn settle_pauses(&mut self, door: Door) {
        let heard = !door.closed || door.drain_deadline.is_some();
        for at in 0..self.queue.len() {
            let common = &mut self.queue[at].common;
            let paused = heard && self.inbox.is_paused(common.id, common.slot);
            if !common.pause(paused, self.now_ns) {
                continue;
            }
            let (phase, told, what) = match paused {
                true => (Phase::Paused, Told::Paused, PAUSED),
                false => (Phase::Queued, Told::Going, Transition::Resumed),
            };
            common.progress.set_phase(phase);
            common.told = told;
            let (id, share) = (common.id, common.share);
            let progress = Arc::clone(&common.progress);
            match paused {
                true => self.accounts.want_not(share),
                false => self.accounts.want(share),
            }
            self.tell(id, &progress, what);
        }
        for &key in &self.order {
            let sequence = self.sequences[key].as_ref();
            if let Some(common) = sequence.and_then(|s| self.requests[s.slot].as_mut()) {
                let paused = heard && self.inbox.is_paused(common.id, common.slot);
                common.pause(paused, self.now_ns);
            }
        }
    }

    /// Parks who is too far ahead of its reader, paused, or without a place, and brings back who is not.
    pub(super) fn settle_credit(&mut self) {
        self.settle_queued_places();
        self.settle_recalls();
        for at in 0..self.order.len() {
            let key = self.order[at];
            let still = self.settle_place(key);
            let Some(sequence) = &mut self.sequences[key] else {
                continue;
            };
            sequence.rows = 0;
            match (sequence.state, still) {
                (State::Active | State::Waiting, Some(still)) => {
                    self.park(key, still);
                    let share = self.share_of(key);
                    self.accounts.want_not(share);
                }
                (State::Parked, Some(still)) if still != sequence.still => self.park(key, still),
                (State::Parked, None) => self.unpark(key),
                _ => {}
            }
        }
    }

    fn park(&mut self, key: usize, still: Still) {
        let Some(sequence) = &mut self.sequences[key] else {
            return;
        };
        let stalled = sequence.stalls();
        sequence.state = State::Parked;
        sequence.still = still;
        sequence.parked_ns = self.now_ns;
        let stats = &self.inbox.stats;
        match still {
            Still::Credit => count(&stats.parks, 1),
            Still::Paused => count(&stats.pauses, 1),
            Still::Place => {}
        }
        sequence.stood |= still != Still::Place;
        let Some(common) = &self.requests[sequence.slot] else {
            return;
        };
        match still {
            Still::Credit => common.progress.stall_begins(self.now_ns),
            Still::Paused => common.progress.add_pause(),
            Still::Place => {}
        }
        if stalled {
            common.progress.stall_ends();
        }
    }

    fn unpark(&mut self, key: usize) {
        let Some(sequence) = &mut self.sequences[key] else {
            return;
        };
        let stalled = sequence.stalls();
        let resumes = std::mem::take(&mut sequence.stood);
        if let Some(common) = &self.requests[sequence.slot] {
            if resumes {
                common.progress.add_resume();
            }
            if stalled {
                common.progress.stall_ends();
            }
        }
        sequence.state = match sequence.pages.is_empty() {
            true => State::Waiting,
            false => State::Active,
        };
        sequence.waits_ns = self.now_ns;
        count(&self.inbox.stats.resumes, usize::from(resumes));
        let share = self.share_of(key);
        self.accounts.want(share);
    }

    fn share_of(&self, key: usize) -> crate::accounts::Share {
        let slot = self.sequences[key].as_ref().map(|s| s.slot);
        self.share(slot.expect("a live sequence"))
    }
}

/// What is said of a request that is paused.
pub(super) const PAUSED: Transition = Transition::Parked { why: Why::Paused };

/// The report on a request that waits for a place.
pub(super) const PLACELESS: Transition = Transition::Parked { why: Why::Place };
