//! What an answer told, whichever way it came.

use super::client::Reply;
use serde_json::Value;

/// What an answer told, streamed or whole.
#[derive(Debug, PartialEq)]
pub struct Told {
    pub texts: Vec<String>,
    pub reasons: Vec<String>,
    /// Entries of all choices, in order of choices.
    pub logprobs: Vec<Value>,
    pub usage: Value,
}

impl Told {
    /// Reads an answer, and checks what every answer must keep to.
    pub fn of(reply: &Reply) -> Self {
        assert_eq!(reply.head.status, 200, "{}", reply.body);
        if reply.head.get("content-type") == Some("text/event-stream") {
            return Self::of_stream(reply);
        }
        let json = reply.json();
        let choices = json["choices"].as_array().unwrap().clone();
        let text = |c: &Value| {
            c["message"]["content"]
                .as_str()
                .or(c["text"].as_str())
                .unwrap()
                .to_owned()
        };
        Self {
            texts: choices.iter().map(text).collect(),
            reasons: choices
                .iter()
                .map(|c| c["finish_reason"].as_str().unwrap().to_owned())
                .collect(),
            logprobs: choices
                .iter()
                .flat_map(|c| entries(&c["logprobs"]))
                .collect(),
            usage: json["usage"].clone(),
        }
    }

    fn of_stream(reply: &Reply) -> Self {
        assert_eq!(reply.frames().last().map(String::as_str), Some("[DONE]"));
        let chunks = reply.chunks();
        let id = &chunks[0]["id"];
        let n = 1 + chunks
            .iter()
            .filter_map(|c| c["choices"][0]["index"].as_u64())
            .max()
            .unwrap() as usize;
        let mut told = Self {
            texts: vec![String::new(); n],
            reasons: vec![String::new(); n],
            logprobs: Vec::new(),
            usage: Value::Null,
        };
        let mut logprobs = vec![Vec::new(); n];
        for chunk in &chunks {
            assert_eq!(&chunk["id"], id);
            let Some(choice) = chunk["choices"].get(0) else {
                told.usage = chunk["usage"].clone();
                continue;
            };
            let index = choice["index"].as_u64().unwrap() as usize;
            assert_eq!(told.reasons[index], "", "nothing follows a finish");
            told.texts[index] += choice["delta"]["content"]
                .as_str()
                .or(choice["text"].as_str())
                .unwrap_or_default();
            logprobs[index].extend(entries(&choice["logprobs"]));
            told.reasons[index] += choice["finish_reason"].as_str().unwrap_or_default();
        }
        assert!(
            told.reasons.iter().all(|r| !r.is_empty()),
            "each choice finishes once: {chunks:?}"
        );
        told.logprobs = logprobs.into_iter().flatten().collect();
        told
    }
}

fn entries(logprobs: &Value) -> Vec<Value> {
    logprobs["content"].as_array().cloned().unwrap_or_default()
}
