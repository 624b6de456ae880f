//! Events of the jobs API as JSON.

use crate::shared::event_parts::{StopReason, TokenRange, ToolCallEvent};
use crate::shared::job_error::JobError;
use generate::output::event::Usage;
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
