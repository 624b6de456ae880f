//! Measurements of which recent ones count more: durations with their quantiles, and rates of busy time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Samples kept, 32 bytes each; a new sample replaces the oldest.
pub(crate) const SAMPLES_MAX: usize = 256;
/// Half-lives after which a sample is forgotten.
const FORGOTTEN: f64 = 4.0;
/// Fewer samples than this are no data.
const SAMPLES_MIN: usize = 3;

/// The last samples, each counting half as much with every half-life that passes.
#[derive(Debug)]
pub(crate) struct RecentSamples {
    /// By time.
    samples: VecDeque<(Instant, Duration)>,
    /// Scratch: (value, weight).
    sorted: Vec<(Duration, f64)>,
    half_life: Duration,
}

impl RecentSamples {
    pub(crate) fn new(half_life: Duration) -> Self {
        Self {
            samples: VecDeque::with_capacity(SAMPLES_MAX),
            sorted: Vec::with_capacity(SAMPLES_MAX),
            half_life,
        }
    }

    /// Samples count half as much after this long, from now on.
    pub(crate) fn set_half_life(&mut self, half_life: Duration) {
        self.half_life = half_life;
    }

    pub(crate) fn add_sample(&mut self, value: Duration, now: Instant) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, value));
    }

    /// The value below which a share `q` of the weight lies; `None`: nothing is known.
    pub(crate) fn quantile(&mut self, q: f64, now: Instant) -> Option<Duration> {
        let age = |at: Instant| half_lives(now.saturating_duration_since(at), self.half_life);
        while self
            .samples
            .front()
            .is_some_and(|&(at, _)| age(at) > FORGOTTEN)
        {
            self.samples.pop_front();
        }
        if self.samples.len() < SAMPLES_MIN {
            return None;
        }
        self.sorted.clear();
        self.sorted.extend(
            self.samples
                .iter()
                .map(|&(at, value)| (value, remaining_part(age(at)))),
        );
        self.sorted.sort_unstable_by_key(|&(value, _)| value);
        let wanted = q * self.sorted.iter().map(|&(_, weight)| weight).sum::<f64>();
        let mut below = 0.0;
        for &(value, weight) in &self.sorted {
            below += weight;
            if below >= wanted {
                return Some(value);
            }
        }
        self.sorted.last().map(|&(value, _)| value)
    }
}

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
mod rate_tests {
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

/// How many half-lives passed.
pub(crate) fn half_lives(passed: Duration, half_life: Duration) -> f64 {
    passed.as_secs_f64() / half_life.as_secs_f64()
}

/// The share that is left after that many half-lives.
pub(crate) fn remaining_part(half_lives: f64) -> f64 {
    (-half_lives).exp2()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an instant to begin with")]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn new_samples_outweigh_old_ones() {
        let start = Instant::now();
        let mut recent = RecentSamples::new(Duration::from_secs(5));
        recent.add_sample(900 * MS, start);
        recent.add_sample(900 * MS, start);
        assert_eq!(recent.quantile(0.5, start), None, "two are no data");
        for _ in 0..100 {
            recent.add_sample(900 * MS, start);
        }
        assert_eq!(recent.quantile(0.5, start), Some(900 * MS));
        let later = start + Duration::from_secs(15);
        for _ in 0..20 {
            recent.add_sample(10 * MS, later);
        }
        // 102 samples at an eighth of their weight weigh less than 20 fresh ones.
        assert_eq!(recent.quantile(0.5, later), Some(10 * MS));
        assert_eq!(recent.quantile(0.95, later), Some(900 * MS));
        let last = start + Duration::from_secs(21);
        assert_eq!(recent.quantile(0.95, last), Some(10 * MS), "forgotten");
        assert_eq!(
            recent.quantile(0.95, last + Duration::from_secs(60)),
            None,
            "no data is not good data"
        );
    }

    #[test]
    fn recent_samples_have_bounded_memory() {
        let start = Instant::now();
        let mut recent = RecentSamples::new(Duration::from_secs(5));
        for _ in 0..10 * SAMPLES_MAX {
            recent.add_sample(MS, start);
        }
        assert_eq!(recent.samples.len(), SAMPLES_MAX);
    }
}
