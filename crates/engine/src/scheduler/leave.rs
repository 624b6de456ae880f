//! Endings: who leaves at the head of a step, and what leaving gives back.

use super::{Scheduler, Stamp};
use crate::Phase;
use crate::Policy;
use crate::Transition;
use crate::inbox::Door;
use crate::sequence::{Common, Sequence, State};
use crate::submitted::Submitted;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Clock, End, FailCode};

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
        self.release_small(&mut sequence.drafts.table);
        self.pages.release_all(&mut sequence.pages);
        let slot = sequence.slot;
        let common = self.requests[slot]
            .as_mut()
            .expect("an open choice has a request");
        common.open -= 1;
        common.release(&mut sequence);
        if sequence.stalls() {
            common.progress.stall_ends();
        }
        if sequence.state != State::Parked {
            self.accounts.want_not(common.share);
        }
        self.accounts.remit(common.share, sequence.owed);
        if common.open == 0
            && let Some(mut common) = self.requests[slot].take()
        {
            self.request_ended(&common, end);
            common.let_go();
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
        let end = self.why(common, now, over);
        end.or_else(|| Some(End::TimedOut(self.clock(common, sequence)?)))
    }

    fn why_unstarted(&self, submitted: &Submitted, now: Instant, over: bool) -> Option<End> {
        if submitted.sequences.iter().all(|s| s.writer.is_abandoned()) {
            return Some(End::Cancelled);
        }
        let common = &submitted.common;
        let queued = || submitted.may_start() && self.over(common.from_ns, common.clocks.queue);
        let end = self.why(common, now, over);
        end.or_else(|| queued().then_some(End::TimedOut(Clock::Queue)))
    }

    /// The clock that has run out for a started sequence, beside the total one.
    fn clock(&self, common: &Common, sequence: &Sequence) -> Option<Clock> {
        let clocks = &common.clocks;
        let still = common.still(sequence).is_some();
        if sequence.stalls() {
            let fired = still && self.over(sequence.parked_ns, clocks.reader);
            return (fired && common.policy == Policy::Cancel).then_some(Clock::Reader);
        }
        if still || sequence.state == State::Parked {
            return None;
        }
        if common.has_token {
            let fired = self.over(sequence.waits_ns, clocks.idle);
            return fired.then_some(Clock::Idle);
        }
        let fired = self.over(common.from_ns, clocks.first_token);
        fired.then_some(Clock::FirstToken)
    }

    /// Whether a clock that counts from then has run out.
    pub(super) fn over(&self, since_ns: u64, clock: Option<Duration>) -> bool {
        clock.is_some_and(|clock| self.now_ns.saturating_sub(since_ns) >= super::nanos(clock))
    }

    fn why(&self, common: &Common, now: Instant, over: bool) -> Option<End> {
        if self.inbox.is_cancelled(common.id, common.slot) {
            return Some(End::Cancelled);
        }
        if common.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(End::Deadline);
        }
        if self.over(common.since_ns, common.clocks.total) {
            return Some(End::TimedOut(Clock::Total));
        }
        over.then_some(End::Failed(FailCode::Shutdown))
    }

    fn end_unstarted(&mut self, at: usize, end: End) {
        let Some(mut submitted) = self.queue.remove(at) else {
            return;
        };
        self.inbox.unqueued(&submitted.common);
        submitted.common.release(&mut submitted.sequences[0]);
        if !submitted.common.paused {
            self.accounts.want_not(submitted.common.share);
        }
        self.request_ended(&submitted.common, end);
        submitted.common.let_go();
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
            // Who waited for a prompt that stands still did not stand still itself.
            if heir.state == State::Parked {
                let share = self.share(leader.slot);
                self.accounts.want_not(share);
            }
        }
    }

    fn request_ended(&mut self, common: &Common, end: End) {
        common.progress.set_ended(self.now_ns);
        common.progress.set_phase(Phase::Ended);
        self.accounts.close(common.share);
        self.stamps.push(Stamp::Ended {
            id: common.id,
            progress: Arc::clone(&common.progress),
            end: self.planned.then_some(end),
        });
        self.vacated.push(common.slot);
        if !self.planned {
            self.tell(common.id, &common.progress, Transition::Ended(end));
        }
    }

    fn choice_ended(&mut self, end: End) {
        self.ended += 1;
        self.inbox.stats.ended(end);
    }
}
