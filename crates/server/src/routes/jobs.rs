//! `/v1/inference` and `/v1/jobs*`. A job is a stream with a name that the client can choose.

use crate::app::App;
use crate::request::extract::{AskedId, GenerationRequest};
use crate::response::Rejected;
use crate::response::stream_response::{StreamResponder, with_stream_id};
use crate::routes::streams::{ResumeOptions, stream_events};
use admission::QueuePosition;
use axum::Json;
use axum::extract::{FromRef, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gateway::job_names::JobNames;
use gateway::keys::Caller;
use gateway::open::Resumable;
use gateway::streams::{ChoiceLog, StreamRecord, StreamRegistry, StreamState};
use generate::error::{ApiError, ErrorKind};
use generate::output::event::Times;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use stream::StreamId;
use wire::clock;
use wire::framing::Framing;
use wire::item_page::Query;
use wire::protocol::Protocol;
use wire::shared::job_outcome::{self, JobError, JobErrorCode, JobId, JobOutcome};

/// Runs a job with a subscriber. A streamed job is resumable unless the client chooses otherwise.
pub(crate) async fn run_inference(
    State(responder): State<StreamResponder>,
    mut request: GenerationRequest,
) -> Result<Response, Rejected> {
    let resumable = &mut request.delivery.resumable;
    resumable.get_or_insert(Resumable::IfStreamed);
    let request = request.in_protocol(Protocol::Job, Framing::Sse)?;
    let opened = responder.open(request).await?;
    Ok(responder.respond(opened).await)
}

/// Runs a job without a subscriber.
pub(crate) async fn submit_job(
    State(responder): State<StreamResponder>,
    mut request: GenerationRequest,
) -> Result<Response, Rejected> {
    request.delivery.resumable = Some(Resumable::Yes);
    let request = request.in_protocol(Protocol::Job, Framing::Sse)?;
    let record = responder.open(request).await?.record;
    record.wait_written().await;
    Ok(submitted_job(&record))
}

pub(crate) async fn show_job(job: JobInPath) -> Result<Response, Rejected> {
    let record = job.find_stream()?;
    Ok(Json(describe_job(&record)).into_response())
}

pub(crate) async fn watch_job(
    State(responder): State<StreamResponder>,
    job: JobInPath,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Rejected> {
    let record = job.find_stream()?;
    let resume = ResumeOptions::parse(&headers, &Query::of(&uri)?)?;
    let protocol = Some(resume.protocol.unwrap_or(Protocol::Job));
    Ok(stream_events(&responder, &record, ResumeOptions { protocol, ..resume }).await?)
}

/// Cancels a job within one step. A job that has ended stays as it is.
pub(crate) async fn cancel_job(job: JobInPath) -> Result<Response, Rejected> {
    Ok(job.stop(JobStop::Cancel).await?)
}

/// Cancels a job; a job that has ended is removed.
pub(crate) async fn delete_job(job: JobInPath) -> Result<Response, Rejected> {
    Ok(job.stop(JobStop::Delete).await?)
}

/// What becomes of a job that has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JobStop {
    /// The job stays.
    Cancel,
    /// The job is removed.
    Delete,
}

/// Extractor: the job in the path, if visible to the caller.
pub(crate) struct JobInPath {
    id: String,
    caller: Caller,
    names: Arc<JobNames>,
    streams: Arc<StreamRegistry>,
}

impl FromRequestParts<App> for JobInPath {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Rejected> {
        let AskedId { id, caller } = AskedId::from_request_parts(head, app).await?;
        Ok(Self {
            id,
            caller,
            names: FromRef::from_ref(app),
            streams: FromRef::from_ref(app),
        })
    }
}

impl JobInPath {
    /// The stream of the job, by the name of the job or by the stream id.
    fn find_stream(&self) -> Result<Arc<StreamRecord>, ApiError> {
        let named = || {
            self.names
                .find_stream(self.caller.owner, &JobId::parse(&self.id)?)
        };
        let found = if self.id.parse::<StreamId>().is_ok() {
            self.streams.find_stream(&self.id, &self.caller)
        } else {
            let id = named().map_or_else(String::new, |id| id.to_string());
            self.streams.find_stream(&id, &self.caller)
        };
        found.map(|stream| stream.payload)
    }

    async fn stop(&self, stop: JobStop) -> Result<Response, ApiError> {
        match self.find_stream() {
            Ok(record) => {
                match record.state() {
                    StreamState::Ended if stop == JobStop::Delete => {
                        self.streams.forget_stream(&record).written().await;
                    }
                    StreamState::Ended => {}
                    _ => record.cancel_written().await,
                }
                Ok((StatusCode::ACCEPTED, Json(describe_job(&record))).into_response())
            }
            // The job existed and has been stopped for good.
            Err(error) if error.kind == ErrorKind::Gone => {
                let gone = JobGone {
                    job_id: &self.id,
                    state: "gone",
                };
                Ok((StatusCode::ACCEPTED, Json(gone)).into_response())
            }
            Err(error) => Err(error),
        }
    }
}

/// A job that was submitted.
#[derive(JsonSchema, Serialize)]
pub(crate) struct SubmittedJob {
    job_id: String,
    /// The URL of the job's events.
    sse_url: String,
}

/// A job's status.
#[derive(JsonSchema, Serialize)]
pub(crate) struct JobStatus<'a> {
    job_id: String,
    stream_id: String,
    model: &'a str,
    state: &'static str,
    /// Position in the admission queue, from 1; absent while the job is not queued.
    position: Option<usize>,
    started_at: Option<String>,
    ended_at: Option<String>,
    tokens_out: u64,
    decode_time_ms: u64,
    /// The end of the job; `null` while the job is not finished.
    ending: Option<JobEnding<'a>>,
    /// The URL of the job's events.
    sse_url: String,
}

/// The end of a job: a stop reason or an error.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
enum JobEnding<'a> {
    Stop {
        stop_reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_sequence_matched: Option<&'a str>,
    },
    Error(JobError<'a>),
}

/// A job that was stopped and is no longer retained.
#[derive(JsonSchema, Serialize)]
pub(crate) struct JobGone<'a> {
    job_id: &'a str,
    state: &'static str,
}

fn submitted_job(record: &StreamRecord) -> Response {
    let body = SubmittedJob {
        job_id: job_id(record),
        sse_url: sse_url(record),
    };
    with_stream_id((StatusCode::ACCEPTED, Json(body)).into_response(), record)
}

/// The id of a job in paths; that of its stream if the stream was opened in another wire protocol.
fn job_id(record: &StreamRecord) -> String {
    match record.terms().protocol {
        Protocol::Job => record.meta().response_id.clone(),
        _ => record.id().to_string(),
    }
}

/// The URL of a job's events, by the stream's id: valid for every caller that may see the stream.
fn sse_url(record: &StreamRecord) -> String {
    format!("/v1/jobs/{}/stream", record.id())
}

fn describe_job(record: &StreamRecord) -> JobStatus<'_> {
    let started = record.started();
    let times = started.map_or_else(Times::default, Times::of);
    let tokens = started.map_or(0, |s| {
        s.choices.iter().map(ChoiceLog::answered).sum::<u64>()
    });
    let end = started.and_then(|s| s.choices.iter().find_map(|c| c.tokens.end()));
    let ending = match (record.rejection(), end) {
        (Some(error), _) => Some(rejected_ending(error)),
        (None, Some(end)) if record.state() == StreamState::Ended => {
            Some(stream_ending(end, record))
        }
        _ => None,
    };
    let utc = |at| clock::utc_millis(clock::wall(at));
    JobStatus {
        job_id: job_id(record),
        stream_id: record.id().to_string(),
        model: &record.meta().model,
        state: record.state().name(),
        position: record.queue_position().and_then(QueuePosition::position),
        started_at: times.started.map(utc),
        ended_at: times.ended.map(utc),
        tokens_out: tokens,
        decode_time_ms: u64::try_from(times.decoding().as_millis()).unwrap_or(u64::MAX),
        ending,
        sse_url: sse_url(record),
    }
}

fn rejected_ending(error: &ApiError) -> JobEnding<'_> {
    match JobErrorCode::from_error(error) {
        JobErrorCode::Cancelled => JobEnding::Stop {
            stop_reason: "CANCELLED",
            stop_sequence_matched: None,
        },
        _ => JobEnding::Error(JobError::new(error)),
    }
}

fn stream_ending(end: stream::End, record: &StreamRecord) -> JobEnding<'_> {
    match job_outcome::job_outcome(end) {
        JobOutcome::End { reason, stop } => {
            let stop = stop.and_then(|stop| record.meta().stops.get(usize::from(stop)));
            JobEnding::Stop {
                stop_reason: reason,
                stop_sequence_matched: stop.map(String::as_str),
            }
        }
        JobOutcome::Error(error) => JobEnding::Error(error),
    }
}
