//! Lines of Ollama's protocol as JSON.

use crate::anthropic::content::tool_input;
use crate::clock;
use crate::openai::logprobs::TokenLogprobs;
use crate::rfc3339::Nanos;
use crate::schema::written_as;
use engine::Token;
use generate::output::collected::CollectedCall;
use generate::output::event::Usage;
use generate::stream_source::ChoiceLog;
use schemars::JsonSchema;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};
use stream::Read;

/// Tokens read from the token log at a time.
const TOKENS_PER_READ: usize = 256;

/// A line of a stream, or a non-streaming response.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaResponse")]
pub(super) struct ResponseLine<'a> {
    pub(super) model: &'a str,
    pub(super) created_at: Nanos,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<OllamaMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) thinking: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) tool_calls: &'a [ToolCallObject<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<TokenLogprobs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) choice: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queued: Option<usize>,
    pub(super) done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) percent: Option<u64>,
    #[serde(flatten)]
    pub(super) summary: Option<LineSummary<'a>>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct OllamaMessage<'a> {
    pub(super) role: &'static str,
    pub(super) content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) thinking: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) tool_calls: &'a [ToolCallObject<'a>],
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaToolCall")]
pub(super) struct ToolCallObject<'a> {
    id: &'a str,
    function: OllamaFunction<'a>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct OllamaFunction<'a> {
    name: &'a str,
    #[schemars(with = "Map<String, Value>")]
    arguments: Box<RawValue>,
}

/// Finish reason, durations in nanoseconds and token counts of a choice that has ended.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaSummary")]
pub(super) struct LineSummary<'a> {
    pub(super) done_reason: &'static str,
    pub(super) total_duration: u64,
    pub(super) load_duration: u64,
    pub(super) prompt_eval_count: u64,
    pub(super) prompt_eval_duration: u64,
    pub(super) eval_count: u64,
    pub(super) eval_duration: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<ContextIds<'a>>,
}

/// Token ids of the prompt and of the answer: a client that sends them with the next request continues the
/// conversation.
pub(super) struct ContextIds<'a> {
    pub(super) log: &'a ChoiceLog,
    pub(super) prompt: &'a [u32],
}

/// Output of one line.
#[derive(Default)]
pub(super) struct LineOutput<'a> {
    pub(super) text: &'a str,
    pub(super) thinking: &'a str,
    pub(super) tool_calls: &'a [ToolCallObject<'a>],
}

impl<'a> ToolCallObject<'a> {
    pub(super) fn new(call: &'a CollectedCall) -> Self {
        Self {
            id: &call.id,
            function: OllamaFunction {
                name: &call.name,
                arguments: tool_input(call),
            },
        }
    }
}

written_as!(ContextIds<'_> => Vec<u32>);

impl Serialize for ContextIds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for id in self.prompt {
            list.serialize_element(id)?;
        }
        // Position 0 of a token log can always be read.
        let Ok(mut reader) = self.log.tokens.attach(0) else {
            return list.end();
        };
        let mut buffer = [Token {
            id: 0,
            logprob: 0.0,
        }; TOKENS_PER_READ];
        while let Read::Items(n) = reader.read(&mut buffer) {
            for token in &buffer[..n] {
                list.serialize_element(&token.id)?;
            }
        }
        list.end()
    }
}

/// Durations of the parts of a request.
pub(crate) struct Durations {
    pub(super) total: Duration,
    /// Queue time, until prefill begins.
    pub(super) load: Duration,
    /// Prefill time, until the first token.
    pub(crate) prompt: Duration,
    /// Decode time, from the first token to the end.
    pub(crate) answer: Duration,
}

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

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
