//! Events of the jobs API as JSON.

use super::error_response::JobError;
use generate::output::event::{PartOrigin, ToolCall, ToolCallPart, Usage};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// An event of a job.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum JobEvent<'a> {
    Queued {
        position: usize,
    },
    Started(JobHead<'a>),
    Token {
        t: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        kind: Option<&'static str>,
        #[serde(flatten)]
        tokens: TokenRange,
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<usize>,
    },
    Metrics {
        #[serde(flatten)]
        counts: JobCounts,
        tokens_per_sec: f64,
    },
    End {
        #[serde(flatten)]
        counts: JobCounts,
        #[serde(flatten)]
        reason: StopReason<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<usize>,
    },
    Error(JobError<'a>),
    /// A part of a tool call.
    #[serde(untagged)]
    ToolCall {
        #[serde(flatten)]
        part: ToolCallEvent<'a>,
        #[serde(flatten)]
        tokens: TokenRange,
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<usize>,
    },
}

/// Part of a tool call, in jobs and in WebSocket messages.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type")]
pub enum ToolCallEvent<'a> {
    #[serde(rename = "tool_call")]
    Start {
        call: u32,
        id: &'a str,
        name: &'a str,
    },
    #[serde(rename = "tool_args")]
    Arguments { call: u32, t: &'a str },
    #[serde(rename = "tool_end")]
    End { call: u32 },
}

impl<'a> ToolCallEvent<'a> {
    /// The event of this part.
    pub(crate) fn new(call: &ToolCall<'a>) -> Self {
        let index = call.index;
        match call.part {
            ToolCallPart::Start { id, name } => Self::Start {
                call: index,
                id,
                name,
            },
            ToolCallPart::Args(t) => Self::Arguments { call: index, t },
            ToolCallPart::End => Self::End { call: index },
        }
    }
}

/// The range of tokens that an event covers.
#[derive(JsonSchema, Serialize)]
pub struct TokenRange {
    /// Index of the first token.
    i: u64,
    /// Number of tokens; absent for a single token.
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u64>,
}

impl TokenRange {
    /// Token range of a part of a choice.
    pub(crate) fn new(at: &PartOrigin<'_>) -> Self {
        Self {
            i: at.first,
            n: (at.tokens != 1).then_some(at.tokens),
        }
    }
}

/// Identity of a job.
#[derive(JsonSchema, Serialize)]
pub(super) struct JobHead<'a> {
    pub(super) job_id: &'a str,
    pub(super) model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) started_at: Option<String>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct JobCounts {
    pub(super) tokens_out: u64,
    pub(super) decode_time_ms: u64,
}

impl JobCounts {
    pub(super) fn new(usage: Usage, decoding: Duration) -> Self {
        Self {
            tokens_out: usage.completion_tokens,
            decode_time_ms: u64::try_from(decoding.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Why a choice ended.
#[derive(JsonSchema, Serialize)]
pub struct StopReason<'a> {
    stop_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_sequence_matched: Option<&'a str>,
}

impl<'a> StopReason<'a> {
    /// The reason with the stop string of this index, if one matched.
    pub(crate) fn new(stop_reason: &'static str, stop: Option<u16>, stops: &'a [String]) -> Self {
        let stop = stop.and_then(|index| stops.get(usize::from(index)));
        Self {
            stop_reason,
            stop_sequence_matched: stop.map(String::as_str),
        }
    }
}

/// The non-streaming response of a job.
#[derive(JsonSchema, Serialize)]
pub(super) struct CollectedJob<'a> {
    #[serde(flatten)]
    pub(super) head: JobHead<'a>,
    pub(super) text: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reasoning: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<JobToolCall<'a>>,
    #[serde(flatten)]
    pub(super) counts: JobCounts,
    #[serde(flatten)]
    pub(super) reason: Option<StopReason<'a>>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct JobToolCall<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}
