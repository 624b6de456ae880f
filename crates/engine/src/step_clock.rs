//! The time of the current step, in the units that the scheduler counts in.

use std::time::{Duration, Instant};

/// The time of the current step's head. Times in nanoseconds count from the epoch; 0 = has not happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepClock {
    epoch: Instant,
    now: Instant,
    now_ns: u64,
}

impl StepClock {
    pub(crate) fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            now: epoch,
            now_ns: 0,
        }
    }

    /// Moves to the next step's head. Returns the nanoseconds since the last one.
    pub(crate) fn advance_to(&mut self, now: Instant) -> u64 {
        let last_ns = self.now_ns;
        self.now = now;
        self.now_ns = self.since_epoch_ns(now);
        self.elapsed_ns(last_ns)
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Nanoseconds since the epoch, at least 1.
    pub(crate) fn since_epoch_ns(&self, at: Instant) -> u64 {
        duration_ns(at.saturating_duration_since(self.epoch)).max(1)
    }

    /// Nanoseconds from then to the step's head.
    pub(crate) fn elapsed_ns(&self, since_ns: u64) -> u64 {
        self.now_ns.saturating_sub(since_ns)
    }

    /// Whether a time limit that counts from then has passed; never without a limit.
    pub(crate) fn has_passed(&self, since_ns: u64, limit: Option<Duration>) -> bool {
        limit.is_some_and(|limit| self.elapsed_ns(since_ns) >= duration_ns(limit))
    }

    /// The moment at which a limit that counts from then passes, if that is in the future.
    pub(crate) fn passes_at(&self, since_ns: u64, limit: Duration) -> Option<Instant> {
        let at_ns = since_ns.saturating_add(duration_ns(limit));
        if at_ns <= self.now_ns {
            return None;
        }
        self.epoch.checked_add(Duration::from_nanos(at_ns))
    }
}

/// The duration in nanoseconds; `u64::MAX` for a longer duration.
pub(crate) fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an epoch for virtual time")]
    fn clock() -> (StepClock, Instant) {
        let epoch = Instant::now();
        (StepClock::new(epoch), epoch)
    }

    #[test]
    fn limit_passes_at_its_exact_nanosecond() {
        let (mut clock, epoch) = clock();
        let limit = Duration::from_nanos(50);
        assert_eq!(clock.advance_to(epoch + Duration::from_nanos(100)), 100);
        assert!(!clock.has_passed(51, Some(limit)) && clock.has_passed(50, Some(limit)));
        assert!(!clock.has_passed(0, None), "without a limit");
        let passes_at = epoch + Duration::from_nanos(101);
        assert_eq!(clock.passes_at(51, limit), Some(passes_at));
        assert_eq!(clock.passes_at(50, limit), None, "in the past");
        assert_eq!(clock.since_epoch_ns(epoch), 1, "0 means never");
    }
}
