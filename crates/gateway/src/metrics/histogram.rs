//! Distributions in buckets that were fixed when this was compiled.

use engine::{LATENCY_BOUNDS_NS, LATENCY_BUCKETS, LatencySnapshot};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a size: 1 to 16384, and larger.
const SIZE_BUCKETS: usize = 15;

/// Upper bounds of a size's buckets: each twice the one before.
const SIZE_BOUNDS: [u64; SIZE_BUCKETS] = doubling_bounds();

/// Counts by bucket, written by any thread without waiting.
///
/// One sample is two additions, which are not one atomic step: a reader may see a sample's bucket and not yet its
/// value in the sum. The number of samples is the sum of the buckets, so that the two never disagree.
#[derive(Debug)]
struct Buckets<const COUNTS: usize> {
    /// The last one counts values above every bound.
    counts: [AtomicU64; COUNTS],
    sum: AtomicU64,
}

impl<const COUNTS: usize> Buckets<COUNTS> {
    const fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; COUNTS],
            sum: AtomicU64::new(0),
        }
    }

    /// Counts `value` in the first bucket with a bound not below `value`.
    fn record_value(&self, bounds: &[u64], value: u64) {
        let bucket = bounds.partition_point(|&bound| bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn bucket_counts(&self) -> Vec<u64> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.counts.iter().map(read).collect()
    }

    fn value_sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

/// A latency's distribution, in the same buckets as the engine's: 416 bytes.
#[derive(Debug)]
pub struct Latency(Buckets<{ LATENCY_BUCKETS + 1 }>);

impl Latency {
    /// Counts one sample.
    pub(crate) fn record(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.record_value(&LATENCY_BOUNDS_NS, ns);
    }

    /// The counts as of now, in seconds.
    pub fn distribution(&self) -> Distribution {
        Distribution {
            bounds: latency_bounds(),
            counts: self.0.bucket_counts(),
            sum: as_seconds(self.0.value_sum()),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self(Buckets::new())
    }
}

/// A size's distribution: 136 bytes.
#[derive(Debug)]
pub struct Sizes(Buckets<{ SIZE_BUCKETS + 1 }>);

impl Sizes {
    /// Counts one sample.
    pub(crate) fn record(&self, size: usize) {
        self.0.record_value(&SIZE_BOUNDS, size as u64);
    }

    /// The counts as of now.
    pub fn distribution(&self) -> Distribution {
        Distribution {
            bounds: SIZE_BOUNDS.iter().map(|&bound| bound as f64).collect(),
            counts: self.0.bucket_counts(),
            sum: self.0.value_sum() as f64,
        }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self(Buckets::new())
    }
}

/// The values of a histogram, in the base unit (seconds, or a number).
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Upper bounds, inclusive. (buckets)
    pub bounds: Vec<f64>,
    /// (buckets + 1): the last counts samples above every bound.
    pub counts: Vec<u64>,
    /// Sum of all samples.
    pub sum: f64,
}

impl Distribution {
    /// How many samples there are.
    pub fn sample_count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value that this part (0 to 1) of the samples does not exceed, with samples evenly spread in their bucket;
    /// `None` without samples. Samples above every bound count as the last bound.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let all = self.sample_count();
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

impl From<LatencySnapshot> for Distribution {
    fn from(engine: LatencySnapshot) -> Self {
        Self {
            bounds: latency_bounds(),
            counts: engine.counts.to_vec(),
            sum: as_seconds(engine.sum_ns),
        }
    }
}

fn latency_bounds() -> Vec<f64> {
    LATENCY_BOUNDS_NS.iter().map(|&ns| as_seconds(ns)).collect()
}

const fn doubling_bounds() -> [u64; SIZE_BUCKETS] {
    let mut bounds = [0; SIZE_BUCKETS];
    let mut i = 0;
    while i < SIZE_BUCKETS {
        bounds[i] = 1 << i;
        i += 1;
    }
    bounds
}

fn as_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_within_the_documented_factor() {
        let grow = |bounds: &[u64], most: f64| {
            for pair in bounds.windows(2) {
                let by = pair[1] as f64 / pair[0] as f64;
                assert!(by > 1.0 && by <= most, "{pair:?}");
            }
        };
        grow(&LATENCY_BOUNDS_NS, 1.5);
        grow(&SIZE_BOUNDS, 2.0);
        assert_eq!((SIZE_BOUNDS[0], SIZE_BOUNDS[SIZE_BUCKETS - 1]), (1, 16384));
    }

    /// The twin: look at each bound in turn.
    #[test]
    fn sample_counts_in_the_first_fitting_bucket() {
        for size in (0..70).chain([16383, 16384, 16385, 1 << 40]) {
            let sizes = Sizes::default();
            sizes.record(size);
            let first = SIZE_BOUNDS.iter().position(|&bound| size as u64 <= bound);
            let read = sizes.distribution();
            assert_eq!(read.counts[first.unwrap_or(SIZE_BUCKETS)], 1, "{size}");
            assert_eq!((read.sample_count(), read.sum), (1, size as f64));
        }
    }

    #[test]
    fn quantiles_are_near_the_exact_ones() {
        let latency = Latency::default();
        assert_eq!(
            latency.distribution().quantile(0.5),
            None,
            "no data is not zero"
        );
        for ms in 1..=1000 {
            latency.record(Duration::from_millis(ms));
        }
        let read = latency.distribution();
        assert_eq!(read.sample_count(), 1000);
        assert!((read.sum - 500.5).abs() < 1e-6);
        for (part, truth) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99)] {
            let told = read.quantile(part).unwrap();
            assert!((told - truth).abs() < truth / 4.0, "{part}: {told}");
        }
        latency.record(Duration::from_secs(100_000));
        let last = as_seconds(LATENCY_BOUNDS_NS[LATENCY_BUCKETS - 1]);
        assert_eq!(latency.distribution().quantile(1.0), Some(last));
    }

    #[test]
    fn samples_of_all_threads_are_counted() {
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
        assert_eq!(latency.distribution().sample_count(), 40_000);
        assert!((latency.distribution().sum - 4.0 * 49.995).abs() < 1e-6);
    }
}
