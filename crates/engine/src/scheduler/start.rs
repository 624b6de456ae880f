//! Starts: requests that were taken from the inbox, and which of them and of the preempted sequences get pages for all
//! their tokens next.

use super::Scheduler;
use super::priority::{PriorityPolicy, StartClaim};
use super::sequence_table::SequenceTable;
use crate::fair_share::FairShareKey;
use crate::inbox::{Inbox, InboxState, SubmittedRequest};
use crate::sequence::{Sequence, SequenceState};
use crate::stats::count;
use crate::step_time::StepClock;
use crate::terms::Age;
use crate::{Phase, Transition};
use std::collections::VecDeque;
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
            let fair_shares = &mut self.priority.fair_shares;
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
        let fair_shares = &mut self.priority.fair_shares;
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

/// All claims on a start in one step.
pub(super) struct StartCandidates {
    candidates: Vec<StartCandidate>,
}

/// A claim on a start.
#[derive(Clone, Copy)]
pub(super) struct StartCandidate {
    /// A preempted sequence; `None`: a queued request.
    key: Option<usize>,
    claim: StartClaim,
}

impl StartCandidate {
    /// The key of a preempted sequence; `None`: a queued request.
    pub(super) fn key(&self) -> Option<usize> {
        self.key
    }

    pub(super) fn age(&self) -> Age {
        self.claim.age
    }

    pub(super) fn fair_share(&self) -> FairShareKey {
        self.claim.fair_share
    }
}

impl StartCandidates {
    pub(super) fn new(candidates_max: usize) -> Self {
        Self {
            candidates: Vec::with_capacity(candidates_max),
        }
    }

    /// Collects the sequences that wait for pages and the queued requests that may start.
    pub(super) fn collect(&mut self, table: &SequenceTable, queue: &RequestQueue) {
        self.candidates.clear();
        let preempted = table.in_state(SequenceState::Waiting);
        self.candidates
            .extend(preempted.map(|(key, s)| StartCandidate {
                key: Some(key),
                claim: StartClaim {
                    fair_share: table.fair_share(s.slot),
                    waiting_since_ns: s.waiting_since_ns,
                    is_new: false,
                    age: s.age,
                },
            }));
        let queued = queue.iter().filter(|request| request.can_start());
        self.candidates.extend(queued.map(|request| StartCandidate {
            key: None,
            claim: StartClaim {
                fair_share: request.state.fair_share,
                waiting_since_ns: request.sequences[0].waiting_since_ns,
                is_new: true,
                age: request.age(),
            },
        }));
    }

    /// Removes the candidate of the best priority. Each start changes the counters of an account, so priorities
    /// are computed anew at each call.
    pub(super) fn take_first(
        &mut self,
        policy: &PriorityPolicy,
        clock: StepClock,
    ) -> Option<StartCandidate> {
        let all = self.candidates.iter().enumerate();
        let (at, _) = all.min_by_key(|(_, c)| policy.start_priority(&c.claim, clock))?;
        Some(self.candidates.swap_remove(at))
    }
}

/// Queued requests, and the slots that ended requests give back to the inbox.
pub(super) struct RequestQueue {
    /// In order of age.
    requests: VecDeque<Box<SubmittedRequest>>,
    vacated_slots: Vec<usize>,
}

impl RequestQueue {
    pub(super) fn new(inbox_max: usize, requests_max: usize) -> Self {
        Self {
            requests: VecDeque::with_capacity(inbox_max),
            vacated_slots: Vec::with_capacity(requests_max),
        }
    }

    /// Moves new requests in and vacated slots out. Returns the index of the first new request.
    pub(super) fn refill(&mut self, inbox: &Inbox) -> (usize, InboxState) {
        let known = self.requests.len();
        let state = inbox.take_requests(&mut self.requests, &mut self.vacated_slots);
        (known, state)
    }

    /// Gives a slot back at the next [`RequestQueue::refill`].
    pub(super) fn vacate_slot(&mut self, slot: usize) {
        self.vacated_slots.push(slot);
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SubmittedRequest> {
        self.requests.iter().map(|request| &**request)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut SubmittedRequest> {
        self.requests.get_mut(at).map(|request| &mut **request)
    }

    pub(super) fn get(&self, at: usize) -> Option<&SubmittedRequest> {
        self.requests.get(at).map(|request| &**request)
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Box<SubmittedRequest>> {
        self.requests.remove(at)
    }

    /// The index of the first request that is not older.
    pub(super) fn index_of(&self, age: Age) -> usize {
        self.requests.partition_point(|request| request.age() < age)
    }

    /// Puts back a request that was just removed from this index: the queue still has capacity for the request.
    pub(super) fn put_back(&mut self, at: usize, request: Box<SubmittedRequest>) {
        self.requests.insert(at, request);
    }

    /// Panics unless the queue is in order of age.
    pub(super) fn check(&self) {
        let ages = self.requests.iter().map(|request| request.age());
        assert!(ages.is_sorted_by(|a, b| a < b), "the queue is by age");
    }
}
