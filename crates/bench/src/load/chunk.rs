//! What one frame of a stream says, as far as measuring needs it.

use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// One frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Whether it brings something a reader can see.
    pub(super) has_text: bool,
    /// Whether a choice ended.
    pub(super) finished: bool,
    /// The server's own counts.
    pub(super) usage: Option<Usage>,
    /// Whether it tells an error.
    pub(super) is_error: bool,
}

/// The server's own counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Usage {
    #[serde(default)]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    tool_calls: Option<IgnoredAny>,
}

impl Chunk {
    /// Reads a frame's payload (not `[DONE]`); `None` if it is no chunk.
    pub(super) fn read(json: &[u8]) -> Option<Self> {
        let wire: Wire<'_> = serde_json::from_slice(json).ok()?;
        Some(Self {
            has_text: wire.choices.iter().any(Choice::has_text),
            finished: wire
                .choices
                .iter()
                .any(|choice| choice.finish_reason.is_some()),
            usage: wire.usage,
            is_error: wire.error.is_some(),
        })
    }
}

impl Choice<'_> {
    fn has_text(&self) -> bool {
        let some = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|text| !text.is_empty());
        let told = |delta: &Delta<'_>| {
            some(&delta.content) || some(&delta.reasoning_content) || delta.tool_calls.is_some()
        };
        some(&self.text) || self.delta.as_ref().is_some_and(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<Chunk> {
        Chunk::read(json.as_bytes())
    }

    #[test]
    fn text_is_found_in_both_endpoints_chunks() {
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
            let wanted = Chunk {
                has_text,
                ..Chunk::default()
            };
            assert_eq!(read(json), Some(wanted), "{json}");
        }
        assert_eq!(read("<html>"), None);
    }

    #[test]
    fn endings_counts_and_errors_are_found() {
        let of = |json| read(json).unwrap();
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
