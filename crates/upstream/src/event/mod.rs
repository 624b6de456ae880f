//! Bytes of a response to tokens, for each kind of server.
//!
//! ```text
//! event_lines      bytes -> data of events
//! llama_cpp_event  an event of llama.cpp's own route
//! openai_event     an event of completions, with ids
//! text_event       an event of completions without ids
//! ```

mod event_lines;
mod llama_cpp_event;
mod openai_event;
mod text_event;

pub(crate) use event_lines::EventLines;
pub(crate) use llama_cpp_event::LlamaCppEvents;
pub(crate) use openai_event::OpenAiEvents;
pub(crate) use text_event::TextEvents;

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
