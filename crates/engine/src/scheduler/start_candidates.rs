//! The choice of the next request or preempted sequence to get pages.

use super::priority::{PriorityPolicy, StartClaim};
use super::request_queue::RequestQueue;
use super::sequence_table::SequenceTable;
use crate::fair_share::FairShareKey;
use crate::request_id::Age;
use crate::sequence::SequenceState;
use crate::step_clock::StepClock;

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
