//! Chunks of a stream, reduced to what measurement needs: from arbitrarily split bytes of server-sent events.

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

/// Longest line in bytes; a longer line cannot be an event of a token stream.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Incremental line reader.
#[derive(Default)]
pub(super) struct SseReader {
    /// Start of an incomplete line.
    partial: Vec<u8>,
}

/// Error: a line longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl SseReader {
    /// Calls `each` with the payload of each completed `data:` line.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial.is_empty() {
                payload(line, &mut each);
            } else {
                self.return_idle(line)?;
                payload(&self.partial, &mut each);
                self.partial.clear();
            }
            bytes = rest;
        }
        self.return_idle(bytes)
    }

    fn return_idle(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(TooLong);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

/// In these streams each event is one line.
fn payload(line: &[u8], each: &mut impl FnMut(&[u8])) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if let Some(data) = line.strip_prefix(b"data:") {
        each(data.strip_prefix(b" ").unwrap_or(data));
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

    #[test]
    fn split_bytes_give_the_same_events() {
        let text =
            b": hello\n\ndata: {\"a\":1}\n\nid: 7\ndata:{}\r\n\r\nevent: x\ndata: [DONE]\n\n";
        for size in 1..=text.len() {
            let (mut events, mut seen) = (SseReader::default(), Vec::new());
            for piece in text.chunks(size) {
                events.push(piece, |data| seen.push(data.to_vec())).unwrap();
            }
            assert_eq!(
                seen,
                [&b"{\"a\":1}"[..], b"{}", b"[DONE]"],
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn overlong_line_is_rejected() {
        let mut events = SseReader::default();
        let piece = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(events.push(&piece, |_| {}), Ok(()));
        assert_eq!(events.push(b"x", |_| {}), Err(TooLong));
    }
}
