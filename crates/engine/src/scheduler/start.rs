//! Starts: which requests and preempted sequences get pages for all their tokens.

use super::Scheduler;
use crate::request_id::Age;
use crate::sequence::{Sequence, SequenceState};
use crate::stats::count;
use crate::submitted_request::SubmittedRequest;
use crate::{Phase, Transition};
use std::sync::Arc;

/// Starts per step, so that a burst of requests does not delay running ones.
const STARTS_MAX: usize = 64;

/// Result of an attempt to start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartOutcome {
    /// Holds pages for all tokens, or is gone.
    Started,
    /// Waits for pages that are being read.
    Reads,
    /// There are too few pages, or no place in the table.
    NoPages,
}

impl StartOutcome {
    fn of(started: bool) -> Self {
        if started {
            Self::Started
        } else {
            Self::NoPages
        }
    }
}

impl Scheduler {
    /// Starts requests and preempted sequences by priority. The first that finds no pages ends the round: later ones
    /// do not overtake. One that waits for the disk has no use for pages yet, and ends nothing.
    pub(super) fn start_requests(&mut self) {
        self.start_candidates.collect(&self.table, &self.queue);
        for _ in 0..STARTS_MAX {
            let candidates = &mut self.start_candidates;
            let Some(candidate) = candidates.take_first(&self.priority, self.clock) else {
                break;
            };
            let outcome = match candidate.key() {
                Some(key) => self.restart(key),
                None => self.start_queued(candidate.age()),
            };
            match outcome {
                StartOutcome::Started => {}
                StartOutcome::Reads => continue,
                StartOutcome::NoPages => break,
            }
            let now_ns = self.clock.now_ns();
            let fair_shares = self.priority.fair_shares_mut();
            fair_shares.set_started(candidate.fair_share(), now_ns);
        }
    }

    /// Restarts a sequence that was preempted, or parked without pages.
    fn restart(&mut self, key: usize) -> StartOutcome {
        let Some(mut sequence) = self.table.take(key) else {
            return StartOutcome::Started;
        };
        let started = self.allocate_pages(&mut sequence);
        self.table.put_back(key, sequence);
        StartOutcome::of(started)
    }

    /// Starts the queued request of this age.
    fn start_queued(&mut self, age: Age) -> StartOutcome {
        let at = self.queue.index_of(age);
        let Some(mut submitted) = self.queue.remove(at) else {
            return StartOutcome::NoPages;
        };
        let outcome = self.try_start(&mut submitted);
        if outcome != StartOutcome::Started {
            self.queue.put_back(at, submitted);
            return outcome;
        }
        self.inbox.leave_queue(&submitted.state);
        let (mut request, leader) = (submitted.state, &mut submitted.sequences[0]);
        let now_ns = self.clock.now_ns();
        leader.uncharged = leader.uncomputed();
        request.clock_start_ns = now_ns;
        let (id, fair_share) = (request.id, request.fair_share);
        let waited = self.clock.elapsed_ns(request.arrived_ns);
        self.inbox.stats.queue_wait.record(waited);
        let progress = Arc::clone(&request.progress);
        progress.set_phase(Phase::Prefilling);
        progress.set_started(now_ns);
        progress.set_cached_tokens(leader.computed);
        progress.set_prompt_done(leader.computed);
        let fair_shares = self.priority.fair_shares_mut();
        fair_shares.add_uncharged(fair_share, leader.uncharged);
        self.table.insert_request(request);
        for sequence in submitted.sequences {
            fair_shares.begin_demand(fair_share);
            self.table.insert(sequence);
        }
        fair_shares.end_demand(fair_share);
        let (stats, clock) = (&self.inbox.stats, self.clock);
        self.notifier
            .notify(stats, clock, id, &progress, Transition::Started);
        StartOutcome::Started
    }

    /// Takes pages for a queued request, if there is a place for its sequences and nothing to wait for.
    fn try_start(&mut self, submitted: &mut SubmittedRequest) -> StartOutcome {
        if submitted.sequences.len() > self.table.vacancies() {
            return StartOutcome::NoPages;
        }
        if self.waits_for_disk(submitted) {
            return StartOutcome::Reads;
        }
        let started = self.allocate_pages(&mut submitted.sequences[0]);
        if started {
            self.write_reused_pages(&submitted.sequences[0]);
        }
        StartOutcome::of(started)
    }

    /// Takes pages for all tokens of a sequence: indexed pages for the beginning, new pages for the rest.
    /// Returns false when there are too few.
    fn allocate_pages(&mut self, sequence: &mut Sequence) -> bool {
        let missing = self.kv.reuse_prefix(sequence);
        if !self.make_room(missing) {
            self.kv.release(sequence);
            return false;
        }
        let reused = self.kv.activate(sequence, missing);
        count(&self.inbox.stats.prefix_hit_tokens, reused);
        true
    }

    /// Whether there are `need` pages beside the headroom, after the preemption of parked sequences if
    /// that helps.
    fn make_room(&mut self, need: usize) -> bool {
        let running = self.table.in_state(SequenceState::Active).count();
        let wanted = need + running.min(self.inbox.dims.pages / 8);
        let parked = self.table.in_state(SequenceState::Parked);
        let parked_pages: usize = parked.map(|(_, s)| s.pages.len()).sum();
        if self.kv.available() + parked_pages < wanted {
            return false;
        }
        while self.kv.available() < wanted {
            let Some(key) = self.next_victim(SequenceState::Parked) else {
                return false;
            };
            self.preempt(key);
        }
        true
    }
}
