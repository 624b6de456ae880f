//! Durations of the parts of a request, and counts and times as llama.cpp's server reports them.

use crate::clock;
use generate::output::event::Usage;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Counts and times of the prompt and of the answer.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaTimings")]
pub(crate) struct Timings {
    cache_n: u64,
    prompt_n: u64,
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    predicted_n: u64,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
}

impl Timings {
    /// Of a request that arrived at this time, so far.
    pub(crate) fn of(arrived: Instant, usage: Usage) -> Self {
        let times = request_durations(arrived, usage);
        Self::new(usage, times.prompt, times.answer)
    }

    /// Of a request that computed the prompt and the answer in these times.
    fn new(usage: Usage, prompt: Duration, answer: Duration) -> Self {
        let computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
        let (predicted, [prompt_ms, predicted_ms]) =
            (usage.completion_tokens, [prompt, answer].map(milliseconds));
        Self {
            cache_n: usage.cached_tokens,
            prompt_n: computed,
            prompt_ms,
            prompt_per_token_ms: ratio(prompt_ms, computed as f64),
            prompt_per_second: ratio(computed as f64 * 1e3, prompt_ms),
            predicted_n: predicted,
            predicted_ms,
            predicted_per_token_ms: ratio(predicted_ms, predicted as f64),
            predicted_per_second: ratio(predicted as f64 * 1e3, predicted_ms),
        }
    }
}

/// Durations of the parts of a request.
pub(crate) struct Durations {
    pub(crate) total: Duration,
    /// Queue time, until prefill begins.
    pub(crate) load: Duration,
    /// Prefill time, until the first token.
    pub(crate) prompt: Duration,
    /// Decode time, from the first token to the end.
    pub(crate) answer: Duration,
}

/// Durations of a request that arrived at this time, so far.
pub(crate) fn request_durations(arrived: Instant, usage: Usage) -> Durations {
    let times = usage.times;
    let ended = times.ended.unwrap_or_else(clock::now);
    let started = times.started.unwrap_or(ended);
    let first = times.first_token.unwrap_or(ended);
    Durations {
        total: ended.saturating_duration_since(arrived),
        load: started.saturating_duration_since(arrived),
        prompt: first.saturating_duration_since(started),
        answer: ended.saturating_duration_since(first),
    }
}

fn milliseconds(duration: Duration) -> f64 {
    thousandths(duration.as_secs_f64() * 1e3)
}

/// A ratio, or 0 where it has none.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { thousandths(a / b) } else { 0.0 }
}

fn thousandths(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_per_token_and_per_second() {
        let usage = Usage {
            prompt_tokens: 12,
            cached_tokens: 2,
            completion_tokens: 4,
            ..Usage::default()
        };
        let second = Duration::from_secs(1);
        let timings = Timings::new(usage, second, second * 2);
        let json = serde_json::to_value(&timings).expect("JSON");
        let want = serde_json::json!({
            "cache_n": 2, "prompt_n": 10, "prompt_ms": 1000.0, "prompt_per_token_ms": 100.0,
            "prompt_per_second": 10.0, "predicted_n": 4, "predicted_ms": 2000.0,
            "predicted_per_token_ms": 500.0, "predicted_per_second": 2.0,
        });
        assert_eq!(json, want);
        let none = Timings::new(Usage::default(), Duration::ZERO, Duration::ZERO);
        let none = serde_json::to_value(&none).expect("no division by zero");
        assert_eq!(none["prompt_per_token_ms"], 0.0);
    }
}
