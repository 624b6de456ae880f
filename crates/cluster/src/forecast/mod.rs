//! Scale advice: how many engines the demand of the next minutes needs.
//!
//! Cumulative counters go in at any interval; a forecast of arrivals and tokens, and the number of engines, come out.
//!
//! ```text
//! rate       = per interval, from the difference of two readings of the counters
//! tokens     = arrivals * tokens per admitted request: requests that wait or are rejected are demand too
//! prediction = short-term level, moved along the daily profile and a damped trend
//! engines    = highest predicted tokens/s until the horizon / (tokens/s of a full engine * utilization) + backlog
//! ```
//!
//! Everything is computed from arguments: there is no clock and no I/O. Memory is bounded: two profiles of
//! [`SLOTS`](seasonal_rate::SLOTS) slots and [`PENDING_MAX`](seasonal_rate::PENDING_MAX) unresolved predictions each.
//!
//! ```text
//! accuracy        error and bias of predictions whose time came
//! counter_reading cumulative counters, and the rates between two readings
//! daily_profile   mean rate by time of day
//! seasonal_rate   level, trend and profile of one rate
//! step_cost       seconds for each step and each token; from these, tokens/s of a full engine
//! ```

mod seasonal_rate;
#[cfg(test)]
mod simulation;
mod step_cost;
#[cfg(test)]
mod tests;

pub use step_cost::CounterReading;

use seasonal_rate::SeasonalRate;
use std::time::Duration;
use step_cost::{Interval, Intervals, StepCost};

/// More engines are never advised.
pub const ENGINES_MAX: f64 = 1e6;
/// Time in which tokens per request are averaged, seconds.
const REQUEST_SIZE_S: f64 = 600.0;
/// Weight of admitted requests below which the tokens per request stay what they were.
const REQUESTS_MIN: f64 = 0.5;
/// Time in which waiting requests should have been computed, seconds.
const BACKLOG_S: f64 = 60.0;
/// Distance of the predictions whose highest counts, seconds.
const LOOK_S: f64 = 30.0;

/// Aims of the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleTarget {
    /// How far ahead demand is predicted, at most an hour: the time that a new engine needs to be ready, and some.
    pub horizon: Duration,
    /// Share of an engine's tokens/s that is planned with, from 5 to 100.
    pub utilization_percent: u32,
}

impl ScaleTarget {
    fn horizon_s(&self) -> f64 {
        self.horizon.as_secs_f64().min(3600.0)
    }

    fn utilization(&self) -> f64 {
        f64::from(self.utilization_percent.clamp(5, 100)) / 100.0
    }
}

impl Default for ScaleTarget {
    fn default() -> Self {
        Self {
            horizon: Duration::from_secs(300),
            utilization_percent: 85,
        }
    }
}

/// Forecast of one process's demand, or of a sum of several.
#[derive(Debug)]
pub struct DemandForecast {
    target: ScaleTarget,
    intervals: Intervals,
    arrivals: SeasonalRate,
    tokens: SeasonalRate,
    /// Tokens computed for an admitted request, and of these generated ones.
    request_tokens: Option<RequestTokens>,
    requests: RequestSums,
    cost: StepCost,
    waiting: f64,
    slots: f64,
}

#[derive(Clone, Copy, Debug)]
struct RequestTokens {
    computed: f64,
    generated: f64,
}

/// Sums of the last minutes.
#[derive(Clone, Copy, Debug, Default)]
struct RequestSums {
    admitted: f64,
    computed: f64,
    generated: f64,
}

/// One predicted rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PredictedRate {
    /// Present level, per second.
    pub now: f64,
    /// At the horizon, per second.
    pub predicted: f64,
    /// Mean absolute error of earlier predictions by the mean of prediction and truth, from 0 to 2.
    pub error: f64,
    /// Mean error by the same mean, from -2 (predicted too low) to 2.
    pub bias: f64,
}

/// The forecast at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScaleAdvice {
    /// Requests, admitted or not.
    pub arrivals: PredictedRate,
    /// Tokens to be computed for these requests.
    pub tokens: PredictedRate,
    /// Tokens/s of an engine with all slots in use, for the present mix of prompts and answers; 0: not measured yet.
    pub engine_tokens_per_s: f64,
    /// Engines that should be ready at the horizon, not rounded; `None` while the rate of an engine is not known.
    pub engines_wanted: Option<f64>,
}

impl DemandForecast {
    /// A forecast that knows nothing.
    pub fn new(target: ScaleTarget) -> Self {
        Self {
            target,
            intervals: Intervals::default(),
            arrivals: SeasonalRate::default(),
            tokens: SeasonalRate::default(),
            request_tokens: None,
            requests: RequestSums::default(),
            cost: StepCost::default(),
            waiting: 0.0,
            slots: 0.0,
        }
    }

    /// Changes what advice is given for; later predictions are compared at the new horizon.
    pub fn set_target(&mut self, target: ScaleTarget) {
        self.target = target;
    }

    /// Takes a reading of the counters. Readings that follow too soon are left out; counters that went back (another
    /// process), a long gap and a clock that was set begin anew, and keep what was learned.
    pub fn observe(&mut self, reading: &CounterReading, unix_s: f64) {
        self.waiting = reading.waiting as f64;
        self.slots = reading.slots as f64;
        let Some(interval) = self.intervals.next(reading, unix_s) else {
            return;
        };
        self.cost.observe(&interval);
        self.measure_requests(&interval);
        let horizon = self.target.horizon_s();
        let (at, seconds) = (interval.middle_s, interval.seconds);
        let arrivals = interval.arrivals / seconds;
        self.arrivals.observe(at, seconds, arrivals, horizon);
        if let Some(request) = self.request_tokens {
            let tokens = arrivals * request.computed;
            self.tokens.observe(at, seconds, tokens, horizon);
        }
    }

    /// Forecast of the readings so far for the time after `unix_s`.
    pub fn advice(&self, unix_s: f64) -> ScaleAdvice {
        let horizon = self.target.horizon_s();
        let engine_tokens_per_s = self.engine_tokens_per_s();
        let engines_wanted = (engine_tokens_per_s > 0.0).then(|| {
            let waiting = self.waiting * self.request_tokens.map_or(0.0, |r| r.computed);
            let planned = self.highest_tokens(unix_s) / self.target.utilization();
            let engines = (planned + waiting / BACKLOG_S) / engine_tokens_per_s;
            bounded(engines, 0.0, ENGINES_MAX)
        });
        ScaleAdvice {
            arrivals: self.arrivals.predicted(unix_s, horizon),
            tokens: self.tokens.predicted(unix_s, horizon),
            engine_tokens_per_s,
            engines_wanted,
        }
    }

    /// Highest predicted rate from now to the horizon.
    fn highest_tokens(&self, unix_s: f64) -> f64 {
        let steps = (self.target.horizon_s() / LOOK_S).ceil() as usize;
        let ahead = (0..=steps).map(|step| (step as f64 * LOOK_S).min(self.target.horizon_s()));
        let rates = ahead.map(|ahead| self.tokens.planned(unix_s + ahead));
        rates.fold(0.0, f64::max)
    }

    fn engine_tokens_per_s(&self) -> f64 {
        let generated = match self.request_tokens {
            Some(request) if request.computed > 0.0 => request.generated / request.computed,
            _ => return 0.0,
        };
        self.cost.tokens_per_s(generated, self.slots)
    }

    /// Requests and their tokens, older ones forgotten.
    fn measure_requests(&mut self, interval: &Interval) {
        let kept = (-interval.seconds / REQUEST_SIZE_S).exp();
        let computed = interval.prefill_tokens + interval.generated_tokens;
        for (sum, count) in [
            (&mut self.requests.admitted, interval.admitted),
            (&mut self.requests.computed, computed),
            (&mut self.requests.generated, interval.generated_tokens),
        ] {
            *sum = *sum * kept + count;
        }
        if self.requests.admitted >= REQUESTS_MIN {
            self.request_tokens = Some(RequestTokens {
                computed: self.requests.computed / self.requests.admitted,
                generated: self.requests.generated / self.requests.admitted,
            });
        }
    }
}

/// `value` within the bounds, and the lower one for what is no number.
fn bounded(value: f64, least: f64, most: f64) -> f64 {
    if value.is_nan() {
        return least;
    }
    value.clamp(least, most)
}
