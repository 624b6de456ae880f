//! Durations measured lately, and their quantiles.

use super::decay::{half_lives, remaining_part};
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
