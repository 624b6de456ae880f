//! Endings: who leaves at the head of a step, and what leaving gives back.

use super::{Scheduler, Stamp};
use crate::Phase;
use crate::inbox::Door;
use crate::sequence::{Common, Sequence, State, Submitted};
use std::sync::Arc;
use std::time::Instant;
use stream::{End, FailCode};

impl Scheduler {
    /// Ends who was cancelled or abandoned, whose deadline passed, and, when the engine's time
    /// to drain is over, everybody.
    pub(super) fn leave(&mut self, now: Instant, door: Door) {
        let over = door.drain_deadline.is_some_and(|deadline| now >= deadline);
        for at in 0..self.order.len() {
            let key = self.order[at];
            if let Some(end) = self.sequences[key]
                .as_ref()
                .and_then(|s| self.why_now(s, now, over))
            {
                self.end(key, end);
            }
        }
        let mut at = 0;
        while let Some(submitted) = self.queue.get(at) {
            match self.why_unstarted(submitted, now, over) {
                Some(end) => self.end_unstarted(at, end),
                None => at += 1,
            }
        }
    }

    /// Ends one choice: pages and places are given back, then its log says so.
    pub(super) fn end(&mut self, key: usize, end: End) {
        let Some(mut sequence) = self.sequences[key].take() else {
            return;
        };
        self.hand_over(&mut sequence);
        self.pages.release_all(&mut sequence.pages);
        let slot = sequence.slot;
        let common = self.requests[slot]
            .as_mut()
            .expect("an open choice has a request");
        common.open -= 1;
        if common.open == 0
            && let Some(common) = self.requests[slot].take()
        {
            self.request_ended(&common);
        }
        self.choice_ended(end);
        self.publish();
        sequence.finish(end);
    }

    /// Ends all choices of a request because something in it failed.
    pub(crate) fn fail(&mut self, key: usize, code: FailCode) {
        let Some(slot) = self.sequences[key].as_ref().map(|s| s.slot) else {
            return;
        };
        for at in 0..self.order.len() {
            let key = self.order[at];
            if self.sequences[key].as_ref().is_some_and(|s| s.slot == slot) {
                self.end(key, End::Failed(code));
            }
        }
    }

    fn why_now(&self, sequence: &Sequence, now: Instant, over: bool) -> Option<End> {
        let common = self.requests[sequence.slot].as_ref()?;
        if sequence.writer.is_abandoned() {
            return Some(End::Cancelled);
        }
        self.why(common, now, over)
    }

    fn why_unstarted(&self, submitted: &Submitted, now: Instant, over: bool) -> Option<End> {
        if submitted.sequences.iter().all(|s| s.writer.is_abandoned()) {
            return Some(End::Cancelled);
        }
        self.why(&submitted.common, now, over)
    }

    fn why(&self, common: &Common, now: Instant, over: bool) -> Option<End> {
        if self.inbox.is_cancelled(common.id, common.slot) {
            return Some(End::Cancelled);
        }
        if common.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(End::Deadline);
        }
        over.then_some(End::Failed(FailCode::Shutdown))
    }

    fn end_unstarted(&mut self, at: usize, end: End) {
        let Some(submitted) = self.queue.remove(at) else {
            return;
        };
        self.inbox.unqueued(&submitted.common);
        self.request_ended(&submitted.common);
        for _ in &submitted.sequences {
            self.choice_ended(end);
        }
        self.publish();
        for sequence in submitted.sequences {
            sequence.finish(end);
        }
    }

    /// When a choice leaves that was computing the prompt for others, the next of them goes on
    /// where it was.
    fn hand_over(&mut self, leader: &mut Sequence) {
        if leader.own() > 0 || leader.state == State::Forking {
            return;
        }
        let waits = |s: &&mut Sequence| s.slot == leader.slot && s.state == State::Forking;
        let heir = self
            .sequences
            .iter_mut()
            .flatten()
            .filter(waits)
            .min_by_key(|s| s.age);
        if let Some(heir) = heir {
            heir.inherit(leader);
        }
    }

    fn request_ended(&mut self, common: &Common) {
        common.progress.set_ended(self.now_ns);
        common.progress.set_phase(Phase::Ended);
        self.stamps.push(Stamp::Ended(Arc::clone(&common.progress)));
        self.vacated.push(common.slot);
    }

    fn choice_ended(&mut self, end: End) {
        self.ended += 1;
        self.inbox.stats.ended(end);
    }
}
