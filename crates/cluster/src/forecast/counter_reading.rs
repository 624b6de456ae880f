//! Cumulative counters, and the rates between two readings of them.

/// Readings that follow sooner are left out, seconds.
const INTERVAL_MIN_S: f64 = 0.5;
/// Readings that follow later begin anew: what happened between them is not known, seconds.
const INTERVAL_MAX_S: f64 = 900.0;

/// Cumulative counters of a process at one time; `waiting` and `slots` are gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CounterReading {
    /// Requests for generations, rejected ones included.
    pub arrivals: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Prompt tokens that were computed: cached ones are no work.
    pub prefill_tokens: u64,
    /// Tokens that were generated.
    pub generated_tokens: u64,
    /// Steps in which the model ran.
    pub steps: u64,
    /// Duration of these steps, nanoseconds.
    pub step_ns: u64,
    /// Requests that wait now.
    pub waiting: u64,
    /// Sequences that an engine runs at one time.
    pub slots: u64,
}

/// Counts between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    /// Middle of the interval, seconds since the Unix epoch.
    pub(super) middle_s: f64,
    pub(super) seconds: f64,
    pub(super) arrivals: f64,
    pub(super) admitted: f64,
    pub(super) prefill_tokens: f64,
    pub(super) generated_tokens: f64,
    pub(super) steps: f64,
    pub(super) step_seconds: f64,
}

/// Readings as intervals.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    last: Option<(CounterReading, f64)>,
}

impl Intervals {
    /// The interval that ends with this reading, if it can be used.
    pub(super) fn next(&mut self, reading: &CounterReading, unix_s: f64) -> Option<Interval> {
        if !unix_s.is_finite() {
            return None;
        }
        let Some((last, then_s)) = self.last else {
            self.last = Some((*reading, unix_s));
            return None;
        };
        let seconds = unix_s - then_s;
        if (0.0..INTERVAL_MIN_S).contains(&seconds) {
            return None;
        }
        self.last = Some((*reading, unix_s));
        if !(INTERVAL_MIN_S..=INTERVAL_MAX_S).contains(&seconds) {
            return None;
        }
        let since = |now: u64, then: u64| now.checked_sub(then).map(|count| count as f64);
        Some(Interval {
            middle_s: then_s + seconds / 2.0,
            seconds,
            arrivals: since(reading.arrivals, last.arrivals)?,
            admitted: since(reading.admitted, last.admitted)?,
            prefill_tokens: since(reading.prefill_tokens, last.prefill_tokens)?,
            generated_tokens: since(reading.generated_tokens, last.generated_tokens)?,
            steps: since(reading.steps, last.steps)?,
            step_seconds: since(reading.step_ns, last.step_ns)? / 1e9,
        })
    }
}
