//! The engine's counters, gauges and latency histograms. The engine thread writes, any thread reads; each value is consistent by
//! itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stream::{Clock, End, FailCode, Stop};

/// Number of kinds of [`Clock`].
const CLOCKS: usize = 5;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters and gauges, with a method to read each.
        #[derive(Debug, Default)]
        pub struct Stats {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) queue_wait: Latency,
            pub(crate) first_token: Latency,
            pub(crate) inter_token: Latency,
            pub(crate) timed_out: [AtomicU64; CLOCKS],
            pub(crate) endings: [AtomicU64; Endings::KINDS],
        }

        impl Stats {
            $($(#[$doc])* pub fn $name(&self) -> u64 {
                self.$name.load(Ordering::Relaxed)
            })*
        }
    };
}

counters! {
    /// Requests in the inbox or waiting for pages or a permit.
    queued,
    /// Choices that are started and not parked, in prefill or decode.
    running,
    /// Choices that wait for credit.
    parked,
    /// Choices that wait for pages or a permit after they were started.
    waiting,
    /// Pages without content.
    pages_free,
    /// Pages held by sequences.
    pages_used,
    /// Pages without a sequence, kept in the prefix cache.
    pages_cached,
    /// Tokens appended to logs.
    tokens_generated,
    /// Prefill rows computed, recomputation after a preemption included.
    prompt_tokens_computed,
    /// Positions taken from the prefix cache instead of being computed.
    prefix_hit_tokens,
    /// Positions read from the prompt cache on disk into pages of the prefix cache.
    disk_hit_tokens,
    /// Bytes of keys and values read from the prompt cache on disk.
    disk_bytes_read,
    /// Time that requests waited for the prompt cache on disk, nanoseconds.
    disk_read_ns,
    /// Bytes written to the prompt cache on disk.
    disk_bytes_written,
    /// Bytes of the files of the prompt cache on disk.
    disk_bytes,
    /// Files of the prompt cache on disk that were removed because their content was not theirs.
    disk_damaged,
    /// Reads and writes of the prompt cache on disk that failed or had no reply.
    disk_failures,
    /// Steps in which results of the model were applied.
    steps,
    /// Rows given to the model in those steps.
    rows,
    /// Rows of a model that runs ahead that were for nothing: their sequence had ended, or had lost its pages, when the results
    /// came.
    rows_void,
    /// Draft tokens given to the model.
    tokens_drafted,
    /// Draft tokens accepted: tokens that took no step of their own.
    tokens_accepted,
    /// Forced tokens accepted: tokens that the constraint prescribed and that took no step of their own.
    tokens_forced,
    /// Passes of the draft model, or of the MTP head, that failed.
    draft_faults,
    /// Pages of the draft model that sequences hold.
    draft_pages_used,
    /// Inputs (images) that were encoded.
    encodings,
    /// Encodings that failed, each with its request.
    encodings_failed,
    /// Time spent on encodings, nanoseconds.
    encode_ns,
    /// Inputs of prompts whose rows were found in the cache of encodings.
    encoding_hits,
    /// Encodings that the cache dropped for others.
    encodings_dropped,
    /// Bytes of the encodings in the cache.
    encoding_bytes,
    /// Number of preemptions: a choice lost its pages to another.
    preemptions,
    /// Forward passes that failed and were tried again in parts.
    retries,
    /// Times that the model's device failed, so that all keys and values were lost.
    device_faults,
    /// 1 while the model's device is lost: the engine could not open it again, or it failed too often.
    device_lost,
    /// Times a choice was parked for want of credit.
    parks,
    /// Choices that are paused now.
    paused,
    /// Times a choice was paused.
    pauses,
    /// Number of times that a choice resumed after parking for credit or a pause.
    resumes,
    /// Times a request was parked for credit longer than `slow_consumer`.
    slow_consumers,
    /// Time that choices were parked for credit, summed over choices, nanoseconds.
    reader_stall_ns,
    /// Observers that panicked and were dropped.
    observer_panics,
    /// Time spent in steps in which the model ran, nanoseconds.
    step_ns_total,
    /// Time of the last step in which the model ran, nanoseconds.
    step_ns_last,
    /// The part of [`Self::step_ns_total`] that fell to decode rows: each row of a step has an equal share, nanoseconds.
    decode_ns_total,
}

/// Choices ended so far, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// An end-of-sequence token, or a complete grammar.
    pub eos: u64,
    /// A stop string.
    pub stop_string: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// `max_tokens` or the context.
    pub length: u64,
    /// Cancelled, or abandoned by the last reader.
    pub cancelled: u64,
    /// The caller's deadline.
    pub deadline: u64,
    /// One of the server's clocks.
    pub timed_out: u64,
    /// `FailCode::Inference`, `FailCode::NotFinite` and `FailCode::Device`.
    pub inference: u64,
    /// `FailCode::Panic`.
    pub panic: u64,
    /// `FailCode::Shutdown`.
    pub shutdown: u64,
    /// `FailCode::Constraint`.
    pub constraint: u64,
}

impl Endings {
    const KINDS: usize = 11;

    /// The number of ended choices.
    pub fn total(&self) -> u64 {
        self.as_array().iter().sum()
    }

    fn as_array(&self) -> [u64; Self::KINDS] {
        [
            self.eos,
            self.stop_string,
            self.tool_calls,
            self.length,
            self.cancelled,
            self.deadline,
            self.timed_out,
            self.inference,
            self.panic,
            self.shutdown,
            self.constraint,
        ]
    }

    fn index(end: End) -> usize {
        match end {
            End::Stop(Stop::Eos) => 0,
            End::Stop(Stop::StopString(_)) => 1,
            End::Stop(Stop::ToolCalls) => 2,
            End::Length => 3,
            End::Cancelled => 4,
            End::Deadline => 5,
            End::TimedOut(_) => 6,
            End::Failed(FailCode::Inference | FailCode::NotFinite | FailCode::Device) => 7,
            // The engine never ends a choice with the ends of recovered or relayed streams or with `Lost`: an occurrence would
            // be a bug, like a panic.
            End::Failed(
                FailCode::Panic
                | FailCode::ModelChanged
                | FailCode::CrashedEngines
                | FailCode::NoEngine
                | FailCode::Upstream(_),
            )
            | End::Lost => 8,
            End::Failed(FailCode::Shutdown) => 9,
            End::Failed(FailCode::Constraint) => 10,
        }
    }
}

impl Stats {
    /// Choices ended so far, by kind.
    pub fn endings(&self) -> Endings {
        let at = |i: usize| self.endings[i].load(Ordering::Relaxed);
        Endings {
            eos: at(0),
            stop_string: at(1),
            tool_calls: at(2),
            length: at(3),
            cancelled: at(4),
            deadline: at(5),
            timed_out: at(6),
            inference: at(7),
            panic: at(8),
            shutdown: at(9),
            constraint: at(10),
        }
    }

    /// Choices that this clock ended so far.
    pub fn timed_out(&self, clock: Clock) -> u64 {
        self.timed_out[clock_index(clock)].load(Ordering::Relaxed)
    }

    /// Time from the arrival of a request to the start.
    pub fn queue_wait(&self) -> LatencySnapshot {
        self.queue_wait.snapshot()
    }

    /// Time from the arrival of a request to the first token.
    pub fn time_to_first_token(&self) -> LatencySnapshot {
        self.first_token.snapshot()
    }

    /// Time from a token of a choice to the next token. Parked and paused time is excluded, preempted time is
    /// included.
    pub fn inter_token(&self) -> LatencySnapshot {
        self.inter_token.snapshot()
    }

    pub(crate) fn count_end(&self, end: End) {
        if let End::TimedOut(clock) = end {
            self.timed_out[clock_index(clock)].fetch_add(1, Ordering::Relaxed);
        }
        self.endings[Endings::index(end)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

fn clock_index(clock: Clock) -> usize {
    match clock {
        Clock::Queue => 0,
        Clock::FirstToken => 1,
        Clock::Idle => 2,
        Clock::Total => 3,
        Clock::Reader => 4,
    }
}

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
