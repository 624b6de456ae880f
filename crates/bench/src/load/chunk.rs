//! Chunks of a stream, reduced to what measurement needs.

use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// One chunk of a streamed response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StreamChunk {
    /// Whether the chunk has visible text.
    pub(super) has_text: bool,
    /// Whether a choice ended.
    pub(super) finished: bool,
    /// Token counts of the server.
    pub(super) usage: Option<Usage>,
    /// Whether the chunk is an error.
    pub(super) is_error: bool,
}

/// Token counts of the server.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Usage {
    #[serde(default)]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
}

#[derive(Deserialize)]
struct ChunkFields<'a> {
    #[serde(borrow, default)]
    choices: Vec<ChoiceFields<'a>>,
    usage: Option<Usage>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ChoiceFields<'a> {
    #[serde(borrow)]
    delta: Option<DeltaFields<'a>>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct DeltaFields<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    tool_calls: Option<IgnoredAny>,
}

impl StreamChunk {
    /// Parses the payload of an event (not `[DONE]`); `None` for other JSON.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        let wire: ChunkFields<'_> = serde_json::from_slice(json).ok()?;
        Some(Self {
            has_text: wire.choices.iter().any(ChoiceFields::has_text),
            finished: wire
                .choices
                .iter()
                .any(|choice| choice.finish_reason.is_some()),
            usage: wire.usage,
            is_error: wire.error.is_some(),
        })
    }
}

impl ChoiceFields<'_> {
    fn has_text(&self) -> bool {
        let some = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|text| !text.is_empty());
        let delta_has_text = |delta: &DeltaFields<'_>| {
            some(&delta.content) || some(&delta.reasoning_content) || delta.tool_calls.is_some()
        };
        some(&self.text) || self.delta.as_ref().is_some_and(delta_has_text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Option<StreamChunk> {
        StreamChunk::parse(json.as_bytes())
    }

    #[test]
    fn text_is_found_in_chunks_of_both_endpoints() {
        let rows = [
            (
                r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
                false,
            ),
            (
                r#"{"choices":[{"delta":{"content":"a\n\u00e9"}}],"usage":null}"#,
                true,
            ),
            (r#"{"choices":[{"delta":{"reasoning_content":"h"}}]}"#, true),
            (
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
                true,
            ),
            (
                r#"{"choices":[{"text":"a","index":0,"logprobs":null}]}"#,
                true,
            ),
            (r#"{"choices":[{"text":"","finish_reason":null}]}"#, false),
        ];
        for (json, has_text) in rows {
            let wanted = StreamChunk {
                has_text,
                ..StreamChunk::default()
            };
            assert_eq!(parse(json), Some(wanted), "{json}");
        }
        assert_eq!(parse("<html>"), None);
    }

    #[test]
    fn finish_usage_and_errors_are_parsed() {
        let of = |json| parse(json).unwrap();
        assert!(of(r#"{"choices":[{"text":"","finish_reason":"length"}]}"#).finished);
        assert!(of(r#"{"error":{"message":"no"}}"#).is_error);
        let counts =
            r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}"#;
        let usage = Usage {
            prompt_tokens: 3,
            completion_tokens: 5,
        };
        assert_eq!(of(counts).usage, Some(usage));
    }
}
