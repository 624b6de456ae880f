//! Figures from many measurements.

use std::time::Duration;

/// The value below which this share of them lies; zero of none.
pub fn quantile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    let at = (values.len() as f64 * share) as usize;
    let at = at.min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or_default()
}

/// Milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The middle one of these, and between what it lies with 95 %: as it varies where so many are drawn from them again
/// and again.
pub fn median_within(values: &[f64], random: &mut Random) -> (f64, f64, f64) {
    const DRAWS: usize = 2000;
    if values.is_empty() {
        return (f64::NAN, f64::NAN, f64::NAN);
    }
    let mut draw = || {
        let drawn = values.iter().map(|_| values[random.below(values.len())]);
        median(drawn.collect())
    };
    let mut medians: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    medians.sort_by(f64::total_cmp);
    let (low, high) = (medians[DRAWS / 40], medians[DRAWS - 1 - DRAWS / 40]);
    (median(values.to_vec()), low, high)
}

/// Random numbers from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In (0, 1].
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// The time to the next of arrivals that know nothing of each other.
    pub fn gap(&mut self, per_second: f64) -> Duration {
        Duration::from_secs_f64(-self.unit().ln() / per_second)
    }
}
