//! Scheduling priority: the order in which requests are started and sequences get rows.

use crate::fair_share::{FairShareKey, FairShares};
use crate::sequence::{Sequence, SequenceState};
use crate::step_time::{StepClock, duration_ns};
use crate::terms::Age;
use std::time::Duration;

/// The priority of a claim on a start or on rows; the least goes first.
///
/// A claim rises one class for each `ageing` in which the account got no service in that class
/// ([`SchedulingPriority::rank`]). Accounts age rather than requests: otherwise the many requests of one
/// account, which wait long, would all rise above the few of another, and shares would be lost under load. So
/// an account with demand in class `c` (critical = 0) is served at the latest when `c + 1` times `ageing`
/// have passed and older claims are served. Within an account and class, requests go in order of arrival, and
/// sequences take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SchedulingPriority {
    /// 0 = waits too long; otherwise the effective class, plus 1.
    rank: u8,
    /// Claims that have risen to a rank go before claims of the rank's own class.
    in_own_class: bool,
    /// Preempted sequences go before new requests.
    is_new: bool,
    /// For claims that have risen: the start of the wait. For new claims in their own class: the account's counter.
    measure: u64,
    /// Ties go to the older claim.
    age: Age,
}

impl SchedulingPriority {
    /// Lowers a claim by service that the account gets before this claim.
    pub(super) fn lower_by(&mut self, price: u64) {
        if self.in_own_class {
            self.measure = self.measure.saturating_add(price);
        }
    }

    /// The age of the claimant.
    pub(super) fn age(&self) -> Age {
        self.age
    }

    /// The priority with age left out of the comparison.
    pub(super) fn without_age(self) -> Self {
        Self {
            age: Age(0, 0),
            ..self
        }
    }
}

/// A claim to be ranked.
struct PriorityClaim {
    fair_share: FairShareKey,
    /// Start of the time without service.
    since_ns: u64,
    is_new: bool,
    /// Whether the claim is on a start; otherwise on rows.
    is_start: bool,
    age: Age,
}

/// A queued request or a preempted sequence that waits for pages.
#[derive(Clone, Copy)]
pub(super) struct StartClaim {
    pub(super) fair_share: FairShareKey,
    pub(super) waiting_since_ns: u64,
    pub(super) is_new: bool,
    pub(super) age: Age,
}

/// The fair-share counters and the ageing rule: all that priorities are made of.
pub(super) struct PriorityPolicy {
    pub(super) fair_shares: FairShares,
    /// [`crate::EngineConfig::ageing`], at least 1.
    ageing_ns: u64,
}

impl PriorityPolicy {
    pub(super) fn new(accounts_max: usize, ageing: Duration) -> Self {
        Self {
            fair_shares: FairShares::new(accounts_max),
            ageing_ns: duration_ns(ageing).max(1),
        }
    }

    pub(super) fn set_ageing(&mut self, ageing: Duration) {
        self.ageing_ns = duration_ns(ageing).max(1);
    }

    pub(super) fn ageing(&self) -> Duration {
        Duration::from_nanos(self.ageing_ns)
    }

    /// The priority of a claim on a start.
    pub(super) fn start_priority(
        &self,
        claim: &StartClaim,
        clock: StepClock,
    ) -> SchedulingPriority {
        let served_ns = self.fair_shares.started_ns(claim.fair_share);
        let claim = PriorityClaim {
            fair_share: claim.fair_share,
            since_ns: claim.waiting_since_ns.max(served_ns),
            is_new: claim.is_new,
            is_start: true,
            age: claim.age,
        };
        self.rank_claim(&claim, clock)
    }

    /// The priority of a sequence's claim on rows. A parked sequence has no claim and does not age.
    pub(super) fn row_priority(
        &self,
        fair_share: FairShareKey,
        sequence: &Sequence,
        clock: StepClock,
    ) -> SchedulingPriority {
        let served_ns = self.fair_shares.rows_given_ns(fair_share);
        let since_ns = match sequence.state {
            SequenceState::Parked => clock.now_ns(),
            _ => sequence.waiting_since_ns.max(served_ns),
        };
        let claim = PriorityClaim {
            fair_share,
            since_ns,
            is_new: true,
            is_start: false,
            age: sequence.age,
        };
        self.rank_claim(&claim, clock)
    }

    /// The order in which sequences lose their pages, the greatest first: least urgent, then youngest.
    pub(super) fn eviction_rank(
        &self,
        fair_share: FairShareKey,
        sequence: &Sequence,
        clock: StepClock,
    ) -> (u8, Age) {
        let priority = self.row_priority(fair_share, sequence, clock);
        (priority.rank, sequence.age)
    }

    fn rank_claim(&self, claim: &PriorityClaim, clock: StepClock) -> SchedulingPriority {
        let waited = clock.elapsed_ns(claim.since_ns);
        let own_rank = claim.fair_share.class() as u64 + 1;
        let rank = own_rank.saturating_sub(waited / self.ageing_ns);
        let in_own_class = rank == own_rank;
        let measure = match (in_own_class, claim.is_new) {
            (false, _) => claim.since_ns,
            (true, true) if claim.is_start => self.fair_shares.projected_counter(claim.fair_share),
            (true, true) => self.fair_shares.counter(claim.fair_share),
            (true, false) => 0,
        };
        SchedulingPriority {
            rank: rank as u8,
            in_own_class,
            is_new: claim.is_new,
            measure,
            age: claim.age,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Account, Priority};

    fn clock_at(ms: u64) -> StepClock {
        #[expect(clippy::disallowed_methods, reason = "an epoch for virtual time")]
        let epoch = std::time::Instant::now();
        let mut clock = StepClock::new(epoch);
        clock.advance_to(epoch + Duration::from_millis(ms));
        clock
    }

    #[test]
    fn waiting_claim_rises_a_class_per_ageing_and_goes_before_the_class() {
        let mut policy = PriorityPolicy::new(8, Duration::from_millis(10));
        let mut open = |id, class| {
            let account = Account { id, weight: 1 };
            policy.fair_shares.open(account, class)
        };
        let (low, normal) = (open(1, Priority::Low), open(2, Priority::Normal));
        let claim = |fair_share, waiting_since_ns, number| StartClaim {
            fair_share,
            waiting_since_ns,
            is_new: true,
            age: Age(number, 0),
        };
        for (ms, low_goes_first) in [(9, false), (10, true)] {
            let clock = clock_at(ms);
            let waited = policy.start_priority(&claim(low, 0, 2), clock);
            let fresh = policy.start_priority(&claim(normal, clock.now_ns(), 1), clock);
            assert_eq!(waited < fresh, low_goes_first, "after {ms} ms");
        }
    }

    #[test]
    fn preempted_sequence_goes_before_new_request_of_its_class() {
        let mut policy = PriorityPolicy::new(8, Duration::from_secs(1));
        let account = Account { id: 1, weight: 1 };
        let fair_share = policy.fair_shares.open(account, Priority::Normal);
        let claim = |is_new, number| StartClaim {
            fair_share,
            waiting_since_ns: 1,
            is_new,
            age: Age(number, 0),
        };
        let clock = clock_at(1);
        let preempted = policy.start_priority(&claim(false, 2), clock);
        let new = policy.start_priority(&claim(true, 1), clock);
        assert!(preempted < new);
    }
}
