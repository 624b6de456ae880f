//! Frames of a stream of events, and what they told, whichever of OpenAI's formats it was.

use serde_json::Value;
use std::collections::BTreeMap;

/// Where log-probabilities are: chat's list, and completions' four.
const LISTS: [&str; 5] = [
    "content",
    "tokens",
    "token_logprobs",
    "top_logprobs",
    "text_offset",
];

/// One whole event.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub id: Option<String>,
    pub data: String,
}

/// The whole events at the beginning of `text`; what is cut is not one.
pub fn frames(text: &str) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut rest = text;
    while let Some((frame, after)) = rest.split_once("\n\n") {
        rest = after;
        let field = |name: &str| {
            let value = frame.lines().find_map(|line| line.strip_prefix(name));
            value.map(str::to_owned)
        };
        // A comment is no event.
        if let Some(data) = field("data: ") {
            frames.push(Frame {
                id: field("id: "),
                data,
            });
        }
    }
    frames
}

/// What a client knows after some frames.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    pub texts: BTreeMap<u64, String>,
    pub reasons: BTreeMap<u64, Vec<String>>,
    /// By choice and list.
    pub logprobs: BTreeMap<(u64, &'static str), Vec<Value>>,
    pub usage: Vec<Value>,
    /// `[DONE]`, or the error.
    pub endings: Vec<Value>,
}

impl Heard {
    /// Puts the frames together.
    pub fn of(frames: &[Frame]) -> Self {
        let mut heard = Self::default();
        for frame in frames {
            assert!(heard.endings.is_empty(), "nothing follows the ending");
            if frame.data == "[DONE]" {
                heard.endings.push(Value::from("[DONE]"));
                continue;
            }
            let json: Value = serde_json::from_str(&frame.data).expect("JSON");
            if !json["error"].is_null() {
                heard.endings.push(json["error"]["code"].clone());
            }
            if !json["usage"].is_null() {
                heard.usage.push(json["usage"].clone());
            }
            if let Some(choice) = json["choices"].get(0) {
                heard.choice(choice);
            }
        }
        heard
    }

    /// Whether there was an ending.
    pub fn is_over(&self) -> bool {
        self.endings.len() == 1
    }

    fn choice(&mut self, choice: &Value) {
        let index = choice["index"].as_u64().expect("an index");
        let text = choice["delta"]["content"]
            .as_str()
            .or(choice["text"].as_str());
        let all = self.texts.entry(index).or_default();
        *all += text.unwrap_or_default();
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.reasons
                .entry(index)
                .or_default()
                .push(reason.to_owned());
        }
        for name in LISTS {
            let values = choice["logprobs"][name].as_array().cloned();
            let all = self.logprobs.entry((index, name)).or_default();
            all.extend(values.unwrap_or_default());
        }
    }
}
