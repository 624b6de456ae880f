//! The encoder of the jobs API.

use crate::cursor::TerminalMarker;
use crate::encoder::{Collected, DONE, Encoder, FrameId, FrameWriter};
use crate::jobs::request::JobErrorBody;
use crate::schema::{self, ResponseSchemas};
use crate::shared::event_parts::{CallEvent, StopReason, TextEvent, choice_index};
use crate::shared::job_outcome::{self, JobError, JobErrorCode, JobOutcome};
use crate::shared::vision_proxy::{ImageProgress, VisionProxyUsage};
use crate::{clock, json};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::event::{Event, Usage};
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::End;

/// Minimum interval between `metrics` events: the first token after this time triggers the next one.
const METRICS_EACH: Duration = Duration::from_millis(500);

/// Schemas of the jobs API.
pub(crate) const SCHEMAS: ResponseSchemas = ResponseSchemas {
    collected: schema::of::<CollectedJob<'static>>,
    event: schema::of::<JobEvent<'static>>,
    error: schema::of::<JobErrorBody<'static>>,
};

/// The encoder of one job.
///
/// A stream of another protocol may have several choices. Read as a job, each `token` and each `end` then names its
/// `choice`.
pub(crate) struct JobEncoder {
    source: Arc<StreamSource>,
    choices: usize,
    started: bool,
    metrics_each: Duration,
    /// Time of the last `metrics`, or of the first token.
    metrics_at: Option<Instant>,
}

impl JobEncoder {
    /// An encoder of this stream.
    pub(crate) fn new(source: &Arc<StreamSource>) -> Self {
        Self {
            source: Arc::clone(source),
            choices: 1,
            started: false,
            metrics_each: METRICS_EACH,
            metrics_at: None,
        }
    }

    /// The encoder with another interval of `metrics`.
    #[cfg(test)]
    pub(crate) fn with_metrics_each(self, metrics_each: Duration) -> Self {
        Self {
            metrics_each,
            ..self
        }
    }

    fn job_head(&self, started: Option<Instant>) -> JobHead<'_> {
        let meta = self.source.meta();
        JobHead {
            job_id: &meta.response_id,
            model: &meta.model,
            started_at: started.map(|at| clock::utc_millis(clock::wall(at))),
        }
    }

    /// Writes the metrics of a running job when they are due; the `end` event has the metrics of an ended job.
    fn write_running_metrics(&mut self, usage: Usage, now: Instant, out: &mut FrameWriter<'_>) {
        if usage.times.ended.is_some() {
            return;
        }
        let last = *self.metrics_at.get_or_insert(now);
        if now.saturating_duration_since(last) < self.metrics_each {
            return;
        }
        self.metrics_at = Some(now);
        let since = usage.times.first_token.unwrap_or(now);
        let decoding = now.saturating_duration_since(since);
        out.write_frame(FrameId::None, None, &metrics_event(usage, decoding));
    }

    fn write_end(
        &self,
        id: FrameId,
        end: End,
        choice: Option<usize>,
        usage: Usage,
        out: &mut FrameWriter<'_>,
    ) {
        let event = match job_outcome::job_outcome(end) {
            JobOutcome::End { reason, stop } => JobEvent::End {
                counts: JobCounts::new(usage, usage.times.decoding()),
                reason: self.stop_reason(reason, stop),
                choice: choice.and_then(|choice| choice_index(choice, self.choices)),
                vision_proxy: VisionProxyUsage::of(&self.source),
            },
            JobOutcome::Error(error) => JobEvent::Error(error),
        };
        out.write_frame(id, None, &event);
    }

    fn stop_reason(&self, reason: &'static str, stop: Option<u16>) -> StopReason<'_> {
        StopReason::new(reason, stop, &self.source.meta().stops)
    }

    fn write_rejected(&self, error: &ApiError, out: &mut FrameWriter<'_>) {
        let id = FrameId::None;
        match JobErrorCode::from_error(error) {
            JobErrorCode::Cancelled => {
                self.write_end(id, End::Cancelled, None, Usage::default(), out);
            }
            _ => out.write_frame(id, None, &JobEvent::Error(JobError::new(error))),
        }
        out.write_text(id, DONE);
    }
}

impl Encoder for JobEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Queued { position } => {
                let position = *position;
                out.write_frame(FrameId::None, None, &JobEvent::Queued { position });
            }
            Event::Loading { .. } => crate::encoder::write_wait_comment(event, out),
            Event::Image { index, state, .. } => {
                let image = JobEvent::Image(ImageProgress::new(*index, *state));
                out.write_frame(FrameId::None, None, &image);
            }
            Event::Opened { choices, .. } => self.choices = *choices,
            Event::Started { at } => {
                if !std::mem::replace(&mut self.started, true) {
                    let started = JobEvent::Started(self.job_head(Some(*at)));
                    out.write_frame(FrameId::None, None, &started);
                }
            }
            Event::Delta(delta) => {
                let event = JobEvent::Token(TextEvent::new(delta, self.choices));
                out.write_frame(FrameId::Position, None, &event);
                self.write_running_metrics(delta.origin.usage, clock::now(), out);
            }
            Event::ToolCall(call) => {
                let event = JobEvent::ToolCall(CallEvent::new(call, self.choices));
                out.write_frame(FrameId::Position, None, &event);
                self.write_running_metrics(call.origin.usage, clock::now(), out);
            }
            Event::ChoiceEnded {
                choice,
                end,
                usage,
                tokens,
                ..
            } => {
                // Counts tokens of this choice only: the other choices' counts depend on the reader at this point.
                let usage = Usage {
                    completion_tokens: *tokens,
                    ..*usage
                };
                self.write_end(FrameId::Position, *end, Some(*choice), usage, out);
            }
            // `end` includes the counts; `error` does not.
            Event::Usage {
                end: Some(end),
                usage,
            } if matches!(job_outcome::job_outcome(*end), JobOutcome::Error(_)) => {
                let id = FrameId::Terminal(TerminalMarker::Usage);
                out.write_frame(id, None, &metrics_event(*usage, usage.times.decoding()));
            }
            Event::Finished { .. } => out.write_text(FrameId::Terminal(TerminalMarker::Done), DONE),
            Event::Failed { end, usage } => {
                let id = FrameId::Terminal(TerminalMarker::Failed);
                self.write_end(id, *end, None, *usage, out);
                out.write_text(FrameId::Terminal(TerminalMarker::Done), DONE);
            }
            Event::Rejected(error) => self.write_rejected(error, out),
            Event::Resumed { .. } | Event::StateChanged(_) | Event::Usage { .. } => {}
        }
    }

    fn replay_event(&mut self, event: &Event<'_>) {
        if let Event::Resumed { positions } = event {
            (self.choices, self.started) = (positions.len(), true);
        }
    }

    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected { answers, usage, .. } = collected;
        // A job has one choice.
        let Some(answer) = answers.first() else {
            return;
        };
        // A failed job has no collected answer: an error response was sent instead.
        let reason = match answer.end.map(job_outcome::job_outcome) {
            Some(JobOutcome::End { reason, stop }) => Some(self.stop_reason(reason, stop)),
            Some(JobOutcome::Error(_)) | None => None,
        };
        let calls = answer.calls().map(|call| JobToolCall {
            id: &call.id,
            name: &call.name,
            arguments: &call.arguments,
        });
        let job = CollectedJob {
            head: self.job_head(usage.times.started),
            text: &answer.text(),
            reasoning: &answer.reasoning(),
            tool_calls: calls.collect(),
            counts: JobCounts::new(usage, usage.times.decoding()),
            reason,
            vision_proxy: VisionProxyUsage::of(&self.source),
        };
        json::write(&job, out);
    }

    fn end_error(&self, end: End) -> ApiError {
        job_outcome::end_error(end)
    }
}

fn metrics_event(usage: Usage, decoding: Duration) -> JobEvent<'static> {
    let per_sec = tokens_per_sec(usage.completion_tokens, decoding);
    JobEvent::Metrics {
        counts: JobCounts::new(usage, decoding),
        // Rounded to one decimal.
        tokens_per_sec: (per_sec * 10.0).round() / 10.0,
    }
}

/// Rate of the tokens after the first; 0 before any time has passed.
fn tokens_per_sec(tokens: u64, decoding: Duration) -> f64 {
    if decoding.is_zero() {
        return 0.0;
    }
    tokens.saturating_sub(1) as f64 / decoding.as_secs_f64()
}

/// An event of a job.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum JobEvent<'a> {
    Queued {
        position: usize,
    },
    /// An image is on its way to its description by another model.
    Image(ImageProgress),
    Started(JobHead<'a>),
    Token(TextEvent<'a>),
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
        /// The model that described images, where one did.
        #[serde(skip_serializing_if = "Option::is_none")]
        vision_proxy: Option<VisionProxyUsage<'a>>,
    },
    Error(JobError<'a>),
    /// A part of a tool call.
    #[serde(untagged)]
    ToolCall(CallEvent<'a>),
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
    /// The model that described images, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vision_proxy: Option<VisionProxyUsage<'a>>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct JobToolCall<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}
