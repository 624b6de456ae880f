//! Arrival times of requests, and pseudorandom numbers.

use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood 2014): sufficient for arrivals and words, and portable.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// Arrival times of `count` requests after the start: a Poisson process of `rate` per second.
pub(super) fn poisson(rate: f64, count: usize, seed: u64) -> Vec<Duration> {
    let mut random = Random::new(seed);
    let mut at = 0.0;
    let mut next = || {
        at -= random.unit().ln() / rate;
        Duration::from_secs_f64(at)
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_arrivals_have_rate_and_deviation() {
        let due = poisson(50.0, 20_000, 7);
        assert!(due.is_sorted());
        let gaps: Vec<f64> = due
            .windows(2)
            .map(|w| (w[1] - w[0]).as_secs_f64())
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The standard deviation of an exponential distribution equals its mean.
        assert!((mean * 50.0 - 1.0).abs() < 0.03, "{mean}");
        assert!((spread.sqrt() * 50.0 - 1.0).abs() < 0.05, "{spread}");
    }

    #[test]
    fn seed_determines_arrivals() {
        assert_eq!(poisson(3.0, 9, 1), poisson(3.0, 9, 1));
        assert_ne!(poisson(3.0, 9, 1), poisson(3.0, 9, 2));
        // The first number of the published sequence for seed 0.
        assert_eq!(Random::new(0).next(), 0xe220_a839_7b1d_cdaf);
    }
}
