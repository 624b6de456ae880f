//! What a client has received of one stream, in any wire protocol: texts, log-probabilities, finish reasons, token
//! counts and endings, independent of how the frames were cut.

use serde_json::Value;
use std::collections::BTreeMap;

/// Fields whose strings are pieces of one text.
const TEXTS: [&str; 13] = [
    "content",
    "text",
    "reasoning_content",
    "reasoning",
    "delta",
    "partial_json",
    "thinking",
    "arguments",
    "response",
    "t",
    "inputTextDelta",
    "name",
    "code",
];
/// Fields with the reason of an end.
const REASONS: [&str; 5] = [
    "finish_reason",
    "stop_reason",
    "done_reason",
    "finishReason",
    "reason",
];
/// Counts of tokens: the last value holds.
const COUNTS: [&str; 8] = [
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "prompt_eval_count",
    "eval_count",
];
/// Fields that number the parts of an answer.
const NUMBERS: [&str; 4] = ["choice", "index", "output_index", "content_index"];

/// What a client knows of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Transcript {
    /// By place in the events.
    texts: BTreeMap<String, String>,
    logprobs: BTreeMap<String, Vec<String>>,
    reasons: BTreeMap<String, Vec<String>>,
    counts: BTreeMap<String, u64>,
}

impl Transcript {
    /// Adds the data of one event.
    pub(crate) fn add_event(&mut self, data: &str) {
        if data == "[DONE]" {
            let endings = self.reasons.entry("[DONE]".to_owned()).or_default();
            return endings.push("[DONE]".to_owned());
        }
        let json: Value = serde_json::from_str(data).unwrap_or_else(|why| panic!("{why}: {data}"));
        let place = json["type"].as_str().unwrap_or("event").to_owned();
        self.add_value(&place, "", &json);
    }

    /// The transcript without the number of cached tokens, which depends on the engine. Anthropic's input tokens are those that
    /// were not cached.
    pub(crate) fn without_cached(mut self) -> Self {
        let is_uncached =
            |place: &str| place.starts_with("message_") && place.ends_with("/usage/input_tokens");
        self.counts
            .retain(|place, _| !place.ends_with("/cached_tokens") && !is_uncached(place));
        self
    }

    /// Whether the whole of a text is this.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.texts.values().any(|found| found == text)
    }

    /// Whether no text was received.
    pub(crate) fn is_empty(&self) -> bool {
        self.texts.values().all(String::is_empty)
    }

    fn add_value(&mut self, place: &str, field: &str, value: &Value) {
        let in_logprobs = place.contains("logprob") || field == "text_offset" || field == "tokens";
        match value {
            Value::Object(fields) => {
                let mut place = format!("{place}/{field}");
                for number in NUMBERS {
                    if let Some(value) = fields.get(number).and_then(Value::as_u64) {
                        place += &format!("#{value}");
                    }
                }
                for (field, value) in fields {
                    self.add_value(&place, field, value);
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.add_value(&format!("{place}/{field}"), field, value);
                }
            }
            Value::Null => {}
            leaf if in_logprobs => {
                let values = self.logprobs.entry(format!("{place}/{field}")).or_default();
                values.push(leaf.to_string());
            }
            Value::String(text) if TEXTS.contains(&field) => {
                *self.texts.entry(format!("{place}/{field}")).or_default() += text;
            }
            Value::String(reason) if REASONS.contains(&field) => {
                let reasons = self.reasons.entry(format!("{place}/{field}")).or_default();
                reasons.push(reason.clone());
            }
            Value::Number(count) if COUNTS.contains(&field) => {
                let count = count.as_u64().unwrap_or(u64::MAX);
                self.counts.insert(format!("{place}/{field}"), count);
            }
            _ => {}
        }
    }
}
