//! Cost of a step: seconds for each step and seconds for each token, from the engine's own cumulative counters.
//!
//! Least squares over intervals, older ones forgotten: `step seconds = steps * a + tokens * b`. A step with one sequence
//! costs nearly as much as one with many, so the tokens/s of an engine that is not full say little about a full one; the two
//! costs do.

/// Busy seconds of steps after which an observation has lost most of its weight.
const MEMORY_S: f64 = 3600.0;
/// Steps before the first estimate.
const STEPS_MIN: f64 = 100.0;

/// Weighted sums of the normal equations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepCost {
    steps_steps: f64,
    steps_tokens: f64,
    tokens_tokens: f64,
    steps_seconds: f64,
    tokens_seconds: f64,
    /// Not forgotten.
    steps: f64,
}

impl StepCost {
    pub(super) fn observe(&mut self, interval: &Interval) {
        let tokens = interval.prefill_tokens + interval.generated_tokens;
        let (steps, seconds) = (interval.steps, interval.step_seconds);
        if steps < 1.0 || tokens < 1.0 || seconds <= 0.0 {
            return;
        }
        let kept = (-seconds / MEMORY_S).exp();
        // Per busy second, so that each second weighs the same.
        let weight = 1.0 / seconds;
        for (sum, product) in [
            (&mut self.steps_steps, steps * steps),
            (&mut self.steps_tokens, steps * tokens),
            (&mut self.tokens_tokens, tokens * tokens),
            (&mut self.steps_seconds, steps * seconds),
            (&mut self.tokens_seconds, tokens * seconds),
        ] {
            *sum = *sum * kept + product * weight;
        }
        self.steps += steps;
    }

    /// Tokens/s of an engine with all `slots` in use, of which this share is generated; 0: not known.
    pub(super) fn tokens_per_s(&self, generated_share: f64, slots: f64) -> f64 {
        if self.steps < STEPS_MIN {
            return 0.0;
        }
        let (step_s, token_s) = self.costs();
        // Each step generates a token for each slot; prompts are computed in the same steps.
        let steps_per_token = generated_share / slots.max(1.0);
        let seconds = token_s + steps_per_token * step_s;
        super::bounded(1.0 / seconds.max(1e-9), 0.0, 1e9)
    }

    /// Seconds for each step, seconds for each token.
    fn costs(&self) -> (f64, f64) {
        let determinant = self.steps_steps * self.tokens_tokens - self.steps_tokens.powi(2);
        let only_tokens = self.tokens_seconds / self.tokens_tokens.max(f64::MIN_POSITIVE);
        // Steps with always the same number of tokens: the costs cannot be told apart, all counts as cost of tokens.
        if determinant <= 1e-6 * self.steps_steps * self.tokens_tokens {
            return (0.0, only_tokens);
        }
        let step_s = (self.steps_seconds * self.tokens_tokens
            - self.tokens_seconds * self.steps_tokens)
            / determinant;
        let token_s = (self.tokens_seconds * self.steps_steps
            - self.steps_seconds * self.steps_tokens)
            / determinant;
        if step_s < 0.0 {
            return (0.0, only_tokens);
        }
        if token_s < 0.0 {
            let only_steps = self.steps_seconds / self.steps_steps.max(f64::MIN_POSITIVE);
            return (only_steps, 0.0);
        }
        (step_s, token_s)
    }
}

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
