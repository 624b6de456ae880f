//! How fast something goes while there is something to do.

use super::decay::{half_lives, remaining_part};
use std::time::{Duration, Instant};

/// Half-life of the measurements.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Busy time below which nothing is known, seconds.
const KNOWN_S: f64 = 0.05;

/// Units per second of busy time; recent time counts more. Idle time leaves the rate unchanged; busy time without a
/// unit lowers the rate.
#[derive(Debug)]
pub(crate) struct BusyRate {
    units: f64,
    busy_s: f64,
    at: Instant,
}

impl BusyRate {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            units: 0.0,
            busy_s: 0.0,
            at: now,
        }
    }

    /// Advances to `now`; `busy`: whether there was work since the last call.
    pub(crate) fn advance(&mut self, busy: bool, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        let kept = remaining_part(half_lives(passed, HALF_LIFE));
        self.units *= kept;
        self.busy_s *= kept;
        if busy {
            self.busy_s += passed.as_secs_f64();
        }
        self.at = self.at.max(now);
    }

    /// So much was done, just now.
    pub(crate) fn add(&mut self, units: f64) {
        self.units += units;
    }

    /// `None` as long as too little was seen.
    pub(crate) fn per_second(&self) -> Option<f64> {
        (self.busy_s >= KNOWN_S && self.units > 0.0).then(|| self.units / self.busy_s)
    }

    /// How long that many units take.
    pub(crate) fn time_for(&self, units: f64) -> Option<Duration> {
        let seconds = units / self.per_second()?;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an instant to begin with")]
mod tests {
    use super::*;

    fn as_seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn busy_rate_counts_busy_time_and_forgets_old_time() {
        let start = Instant::now();
        let mut rate = BusyRate::new(start);
        assert_eq!(rate.per_second(), None, "nothing is known");
        for i in 1..=40 {
            rate.advance(true, start + as_seconds(f64::from(i) * 0.1));
            rate.add(1.0);
        }
        let near = |rate: &BusyRate, want: f64| {
            let is = rate.per_second().unwrap();
            assert!((is / want - 1.0).abs() < 0.1, "{is} is not near {want}");
        };
        near(&rate, 10.0);
        rate.advance(false, start + as_seconds(14.0));
        near(&rate, 10.0);
        assert_eq!(rate.time_for(0.0), Some(Duration::ZERO));
        rate.advance(true, start + as_seconds(34.0));
        assert!(rate.per_second().unwrap() < 1.0, "busy and nothing done");
        rate.advance(false, start + as_seconds(300.0));
        assert_eq!(rate.per_second(), None, "too long ago");
    }
}
