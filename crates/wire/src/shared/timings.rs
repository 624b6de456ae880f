//! Durations of the parts of a request, and counts and times as llama.cpp's server reports them.

use crate::clock;
use crate::fields::{self, RawJson};
use generate::output::event::Usage;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
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
    /// Time in which images became rows of the prompt, among `prompt_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_ms: Option<f64>,
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
            image_ms: (usage.image_tokens > 0).then(|| milliseconds(usage.encoding)),
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

/// The text of a result: a text, the texts of its parts, or JSON without what no model reads.
pub(crate) fn result_text(raw: RawJson<'_>) -> String {
    if let Some(text) = fields::as_text(raw) {
        return text.into_owned();
    }
    let Some(mut result) = fields::parse_value::<Value>(raw) else {
        return raw.get().to_owned();
    };
    if let Some(texts) = texts_of_parts(&result) {
        return texts.join("\n");
    }
    drop_opaque(&mut result);
    result.to_string()
}

/// The texts of a list of parts that have nothing else; an empty list has none.
fn texts_of_parts(result: &Value) -> Option<Vec<&str>> {
    let parts = result.as_array()?.iter();
    let text = |part: &'_ Value| part.get("text").is_some_and(Value::is_string);
    let is_text = parts.clone().all(text);
    let texts = parts.filter_map(|part| part["text"].as_str());
    is_text.then(|| texts.collect())
}

/// Removes the members that are encrypted for the API that gave the result, and files and images in base64.
fn drop_opaque(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_opaque),
        Value::Object(members) => {
            members.retain(|name, _| {
                let is_file = matches!(&**name, "image_url" | "file_data" | "b64_json");
                !is_file && !name.starts_with("encrypted_")
            });
            members.values_mut().for_each(drop_opaque);
        }
        _ => {}
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
        let timings = Timings::new(usage, second, second * 2);
        let json = serde_json::to_value(&timings).expect("JSON");
        let want = serde_json::json!({
            "cache_n": 2, "prompt_n": 10, "prompt_ms": 1000.0, "prompt_per_token_ms": 100.0,
            "prompt_per_second": 10.0, "predicted_n": 4, "predicted_ms": 2000.0,
            "predicted_per_token_ms": 500.0, "predicted_per_second": 2.0,
        });
        assert_eq!(json, want);
        let seen = Usage {
            image_tokens: 7,
            encoding: second / 4,
            ..usage
        };
        let seen = serde_json::to_value(Timings::new(seen, second, second));
        assert_eq!(seen.expect("JSON")["image_ms"], 250.0);
        let none = Timings::new(Usage::default(), Duration::ZERO, Duration::ZERO);
        let none = serde_json::to_value(&none).expect("no division by zero");
        assert_eq!(none["prompt_per_token_ms"], 0.0);
    }

    #[test]
    fn result_of_any_form_has_a_text() {
        for (result, want) in [
            (r#""a\nb""#, "a\nb"),
            (
                r#"[{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}]"#,
                "a\nb",
            ),
            ("[]", ""),
            (
                r#"[{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]"#,
                r#"[{"stdout":"x","stderr":"","outcome":{"type":"exit","exit_code":0}}]"#,
            ),
            (
                r#"[{"type": "web_search_result", "url": "u", "encrypted_content": "e", "page_age": null}]"#,
                r#"[{"type":"web_search_result","url":"u","page_age":null}]"#,
            ),
            (
                r#"{"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}"#,
                r#"{"type":"computer_screenshot"}"#,
            ),
        ] {
            let raw = serde_json::from_str(result).expect("JSON");
            assert_eq!(result_text(raw), want, "{result}");
        }
    }
}
