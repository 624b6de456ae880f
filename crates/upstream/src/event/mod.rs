//! Bytes of a response to tokens, for each kind of server.
//!
//! ```text
//! llama_cpp_event  events of llama.cpp's own route
//! openai_event     events of completions, with ids and without
//! ```

mod llama_cpp_event;
mod openai_event;

pub(crate) use llama_cpp_event::LlamaCppEvents;
pub(crate) use openai_event::{OpenAiEvents, TextEvents};

use crate::config::EVENT_BYTES_MAX;
use serde_json::Value;

/// Content of an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Chunk {
    /// Tokens, and why the answer ended.
    Tokens(TokenChunk),
    /// The response is complete.
    Done,
}

/// Tokens of an answer in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TokenChunk {
    pub(crate) ids: Vec<u32>,
    /// As many as ids, or none.
    pub(crate) logprobs: Vec<f32>,
    /// Why the answer ended.
    pub(crate) finish: Option<Finish>,
    /// Some ids are not the upstream's own: they only have its text.
    pub(crate) is_cover: bool,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Length,
    /// The stop string, if the upstream names one.
    Stop(Option<String>),
}

/// Why an event cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventError {
    /// The upstream failed; another one, or a later call, may succeed.
    Failed(String),
    /// The upstream refuses the request, or does not speak the protocol.
    Misunderstood(String),
}

/// Parses the events of one response.
pub(crate) enum EventParser {
    OpenAi(OpenAiEvents),
    Text(TextEvents),
    LlamaCpp(LlamaCppEvents),
}

impl EventParser {
    /// Parses the data of the next event.
    pub(crate) fn parse(&mut self, data: &[u8]) -> Result<Chunk, EventError> {
        if data == b"[DONE]" {
            return Ok(Chunk::Done);
        }
        match self {
            Self::OpenAi(events) => events.parse(data),
            Self::Text(events) => events.parse(data),
            Self::LlamaCpp(events) => events.parse(data),
        }
        .map(Chunk::Tokens)
    }
}

/// The error that an event is, where it is one.
fn check_error(error: Option<Value>) -> Result<(), EventError> {
    let Some(error) = error.filter(|error| !error.is_null()) else {
        return Ok(());
    };
    let code = error["code"].as_u64().unwrap_or(0);
    let kind = error["type"].as_str().unwrap_or_default();
    let why = format!("the upstream's error: {:.200}", error.to_string());
    // Types of OpenAI and Millrace, of vLLM, and of llama.cpp.
    let is_passing = ["server_error", "overloaded_error", "unavailable_error"].contains(&kind)
        || kind == "InternalServerError"
        || code >= 500;
    Err(if is_passing {
        EventError::Failed(why)
    } else {
        EventError::Misunderstood(why)
    })
}

fn misunderstood(why: impl Into<String>) -> EventError {
    EventError::Misunderstood(why.into())
}

/// Cuts server-sent events out of bytes. Only `data` is kept.
#[derive(Debug, Default)]
pub(crate) struct EventLines {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl EventLines {
    /// Appends the data of the events that these bytes complete to `into`.
    pub(crate) fn push(&mut self, bytes: &[u8], into: &mut Vec<Vec<u8>>) -> Result<(), TooLong> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.data.len() + part.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.take_line(into);
            }
        }
        Ok(())
    }

    fn take_line(&mut self, into: &mut Vec<Vec<u8>>) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                into.push(std::mem::take(&mut self.data));
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            let data = data.strip_prefix(b" ").unwrap_or(data);
            self.data.extend_from_slice(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(parts: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut into) = (EventLines::default(), Vec::new());
        for part in parts {
            lines.push(part, &mut into).unwrap();
        }
        into
    }

    #[test]
    fn comments_and_other_fields_are_left_out() {
        let bytes = b": ping\n\nevent: x\r\ndata: {\"a\":1}\r\n\r\ndata:b\ndata: c\n\ndata: cut";
        assert_eq!(events(&[bytes]), [b"{\"a\":1}".to_vec(), b"b\nc".to_vec()]);
    }

    #[test]
    fn line_without_an_end_is_an_error() {
        let (mut lines, mut into) = (EventLines::default(), Vec::new());
        let piece = vec![b'x'; 1 << 16];
        let pushes = (0..32).map(|_| lines.push(&piece, &mut into));
        assert!(pushes.last().unwrap().is_err());
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_how_bytes_are_cut(cuts in prop::collection::vec(0..60usize, 0..8)) {
            let bytes = b"data: one\n\n: c\n\ndata: two\r\ndata: three\r\n\r\ndata: [DONE]\n\n";
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&parts), events(&[bytes]));
        }
    }
}
