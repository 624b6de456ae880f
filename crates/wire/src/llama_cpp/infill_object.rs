//! Objects of `/infill` as JSON, with the members of llama.cpp's server.

use generate::output::event::Usage;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
use stream::{End, Stop};

/// An object of a stream with text.
#[derive(JsonSchema, Serialize)]
pub(super) struct InfillText<'a> {
    pub(super) index: usize,
    pub(super) content: &'a str,
    pub(super) tokens: &'a [u32],
    pub(super) stop: bool,
    /// Always 0: there are no slots.
    pub(super) id_slot: u32,
    pub(super) tokens_predicted: u64,
    pub(super) tokens_evaluated: u64,
}

/// The last object of a stream, or a non-streaming response.
#[derive(JsonSchema, Serialize)]
pub(super) struct InfillResult<'a> {
    pub(super) index: usize,
    pub(super) content: &'a str,
    pub(super) tokens: &'a [u32],
    /// Always 0: there are no slots.
    pub(super) id_slot: u32,
    pub(super) stop: bool,
    pub(super) model: &'a str,
    pub(super) tokens_predicted: u64,
    pub(super) tokens_evaluated: u64,
    pub(super) generation_settings: GenerationSettings<'a>,
    /// The text of the prompt, where the ids of tokens are returned.
    pub(super) prompt: &'a str,
    pub(super) has_new_line: bool,
    pub(super) truncated: bool,
    pub(super) stop_type: &'static str,
    pub(super) stopping_word: &'a str,
    pub(super) tokens_cached: u64,
    pub(super) timings: InfillTimings,
}

/// Some of the parameters of a generation.
#[derive(JsonSchema, Serialize)]
pub(super) struct GenerationSettings<'a> {
    pub(super) stop: &'a [String],
    pub(super) stream: bool,
}

/// Counts and times of the prompt and of the answer.
#[derive(JsonSchema, Serialize)]
pub(super) struct InfillTimings {
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

impl InfillTimings {
    /// Of a request that computed the prompt and the answer in these times.
    pub(super) fn new(usage: Usage, prompt: Duration, answer: Duration) -> Self {
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

/// The `stop_type` of an end, and the stop string.
pub(super) fn stop_type(end: End, stops: &[String]) -> (&'static str, &str) {
    match end {
        End::Length => ("limit", ""),
        End::Stop(Stop::StopString(which)) => {
            let word = stops.get(usize::from(which));
            ("word", word.map_or("", String::as_str))
        }
        End::Stop(Stop::Eos | Stop::ToolCalls) => ("eos", ""),
        _ => ("none", ""),
    }
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
        let timings = InfillTimings::new(usage, second, second * 2);
        let json = serde_json::to_value(&timings).expect("JSON");
        let want = serde_json::json!({
            "cache_n": 2, "prompt_n": 10, "prompt_ms": 1000.0, "prompt_per_token_ms": 100.0,
            "prompt_per_second": 10.0, "predicted_n": 4, "predicted_ms": 2000.0,
            "predicted_per_token_ms": 500.0, "predicted_per_second": 2.0,
        });
        assert_eq!(json, want);
        let none = InfillTimings::new(Usage::default(), Duration::ZERO, Duration::ZERO);
        let none = serde_json::to_value(&none).expect("no division by zero");
        assert_eq!(none["prompt_per_token_ms"], 0.0);
    }
}
