//! Distributions in buckets that were fixed when this was compiled.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a latency: 0.1 ms to 210 s, and what is above.
pub(crate) const LATENCY_BUCKETS: usize = 43;

/// Upper bounds of a latency's buckets, nanoseconds: two to each doubling, so a quantile read from
/// them is at most half of itself away from the truth.
pub(crate) const LATENCY_BOUNDS_NS: [u64; LATENCY_BUCKETS] = two_per_doubling(50_000);

/// A latency's distribution: 360 bytes, written by any thread without waiting.
///
/// One sample is two additions. They are not one act: a reader may see a sample's bucket and not yet
/// its value in the sum. The number of samples is the sum of the buckets and so never contradicts
/// them.
#[derive(Debug)]
pub(crate) struct Latency {
    /// The last one is for what is above every bound.
    counts: [AtomicU64; LATENCY_BUCKETS + 1],
    sum_ns: AtomicU64,
}

impl Latency {
    /// Counts one sample.
    pub(crate) fn record(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The counts as of now.
    pub(crate) fn read(&self) -> Distribution {
        Distribution {
            counts: self
                .counts
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
            bounds: LATENCY_BOUNDS_NS.iter().map(|&ns| seconds(ns)).collect(),
            sum: seconds(self.sum_ns.load(Ordering::Relaxed)),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; LATENCY_BUCKETS + 1],
            sum_ns: AtomicU64::new(0),
        }
    }
}

/// A distribution that was read, in its base unit (seconds, or things).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Distribution {
    /// Upper bounds, each included in its bucket. (buckets)
    pub(crate) bounds: Vec<f64>,
    /// (buckets + 1): the last is what is above every bound.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Distribution {
    /// How many samples there are.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value that this part (0 to 1) of the samples does not exceed, as if samples lay evenly in
    /// their bucket; `None` without samples. What is above every bound counts as the last bound.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let all = self.count();
        if all == 0 {
            return None;
        }
        let rank = part.clamp(0.0, 1.0) * all as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (&count, &upper) in self.counts.iter().zip(&self.bounds) {
            let here = count as f64;
            if count > 0 && below + here >= rank {
                return Some(lower + (upper - lower) * (rank - below) / here);
            }
            (below, lower) = (below + here, upper);
        }
        Some(lower)
    }
}

/// The first bucket whose bound is not below the value.
fn bucket(ns: u64) -> usize {
    LATENCY_BOUNDS_NS.partition_point(|&bound| bound < ns)
}

/// 2, 3, 4, 6, 8, 12, 16, ... times `unit`.
const fn two_per_doubling<const N: usize>(unit: u64) -> [u64; N] {
    let mut bounds = [0; N];
    let mut i = 0;
    while i < N {
        bounds[i] = match i % 2 {
            0 => (2 << (i / 2)) * unit,
            _ => (3 << (i / 2)) * unit,
        };
        i += 1;
    }
    bounds
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_by_half_at_most() {
        assert_eq!(LATENCY_BOUNDS_NS[..4], [100_000, 150_000, 200_000, 300_000]);
        assert!(LATENCY_BOUNDS_NS[LATENCY_BUCKETS - 1] > 200 * 1_000_000_000);
        for pair in LATENCY_BOUNDS_NS.windows(2) {
            assert!(pair[0] < pair[1] && 2 * pair[1] <= 3 * pair[0], "{pair:?}");
        }
    }

    /// The twin: look at each bound in turn.
    #[test]
    fn a_sample_falls_into_the_first_bucket_that_holds_it() {
        let slow = |ns: u64| {
            let first = LATENCY_BOUNDS_NS.iter().position(|&bound| ns <= bound);
            first.unwrap_or(LATENCY_BUCKETS)
        };
        let near = LATENCY_BOUNDS_NS.iter().flat_map(|&b| [b - 1, b, b + 1]);
        for ns in near.chain([0, 1, u64::MAX]) {
            assert_eq!(bucket(ns), slow(ns), "{ns}");
        }
    }

    #[test]
    fn quantiles_are_near_the_truth() {
        let latency = Latency::default();
        assert_eq!(latency.read().quantile(0.5), None, "no data is not zero");
        for ms in 1..=1000 {
            latency.record(Duration::from_millis(ms));
        }
        let read = latency.read();
        assert_eq!(read.count(), 1000);
        assert!((read.sum - 500.5).abs() < 1e-6);
        for (part, truth) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99)] {
            let told = read.quantile(part).unwrap();
            assert!((told - truth).abs() < truth / 4.0, "{part}: {told}");
        }
        latency.record(Duration::from_secs(100_000));
        let last = seconds(LATENCY_BOUNDS_NS[LATENCY_BUCKETS - 1]);
        assert_eq!(latency.read().quantile(1.0), Some(last));
    }

    #[test]
    fn no_sample_is_lost_between_threads() {
        let latency = Latency::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for us in 0..10_000 {
                        latency.record(Duration::from_micros(us));
                    }
                });
            }
        });
        assert_eq!(latency.read().count(), 40_000);
        assert!((latency.read().sum - 4.0 * 49.995).abs() < 1e-6);
    }
}
