//! Latency histograms with fixed buckets. The engine thread writes without a lock, any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets with an upper bound; one more counts longer durations.
pub const LATENCY_BUCKETS: usize = 50;

/// The first bucket's upper bound; bounds double every two buckets.
const FIRST_NS: u64 = 64_000;

/// The buckets' inclusive upper bounds in nanoseconds, two to the octave: 64 us, 96 us, 128 us,
/// and so on to 26.8 minutes. A quantile read from them is too long by at most half.
pub const LATENCY_BOUNDS_NS: [u64; LATENCY_BUCKETS] = bounds();

/// A histogram of durations.
#[derive(Debug)]
pub(crate) struct Latency {
    counts: [AtomicU64; LATENCY_BUCKETS + 1],
    sum_ns: AtomicU64,
}

/// The counts of a histogram at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySnapshot {
    /// By bucket, not cumulative; the last one has no upper bound.
    pub counts: [u64; LATENCY_BUCKETS + 1],
    /// Sum of all durations, nanoseconds.
    pub sum_ns: u64,
}

impl Latency {
    pub(crate) fn record(&self, ns: u64) {
        let bucket = LATENCY_BOUNDS_NS.partition_point(|&bound| bound < ns);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot {
            counts: std::array::from_fn(|i| self.counts[i].load(Ordering::Relaxed)),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl LatencySnapshot {
    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The upper bound of the bucket that holds this quantile (0 to 1); the last bound for longer
    /// durations. `None` without a measurement.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let holds = |&n: &u64| {
            seen += n;
            seen >= rank
        };
        let bucket = self.counts.iter().position(holds)?;
        let bound = LATENCY_BOUNDS_NS[bucket.min(LATENCY_BUCKETS - 1)];
        Some(Duration::from_nanos(bound))
    }
}

const fn bounds() -> [u64; LATENCY_BUCKETS] {
    let mut bounds = [0; LATENCY_BUCKETS];
    let mut i = 0;
    while i < LATENCY_BUCKETS {
        let octave = FIRST_NS << (i / 2);
        bounds[i] = octave + (i % 2) as u64 * octave / 2;
        i += 1;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_the_upper_bound_of_its_bucket() {
        let latency = Latency::default();
        assert_eq!(latency.snapshot().quantile(0.5), None);
        for ns in [1, 64_000, 64_001, 1_000_000, u64::MAX >> 8] {
            latency.record(ns);
        }
        let seen = latency.snapshot();
        assert_eq!(seen.count(), 5);
        assert_eq!(&seen.counts[..3], &[2, 1, 0]);
        assert_eq!(seen.counts[LATENCY_BUCKETS], 1, "beyond the last bound");
        let at = |q| seen.quantile(q).map(|d| d.as_nanos());
        assert_eq!(at(0.0), Some(64_000));
        assert_eq!(at(0.6), Some(96_000));
        assert_eq!(at(0.8), Some(1_024_000));
        assert_eq!(at(1.0), Some(1_610_612_736_000));
        assert!(LATENCY_BOUNDS_NS.is_sorted_by(|a, b| a < b));
    }
}
