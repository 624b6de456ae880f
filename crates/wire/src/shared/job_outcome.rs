//! Stop reasons and errors of this server's own protocols for each end of a stream.

use super::finish_reason::{
    CRASHED_ENGINES_MESSAGE, DEVICE_FAILED_MESSAGE, GRAMMAR_LIMIT_MESSAGE, LOST_MESSAGE,
    MODEL_CHANGED_MESSAGE, NO_ENGINE_MESSAGE, NOT_FINITE_MESSAGE, upstream_message,
};
use generate::error::{ApiError, Blame, ErrorKind};
use generate::stop::{ONE_CALL, TURN_END};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
use stream::{Clock, End, FailCode, Stop, StreamId};

/// `Retry-After` of a server that was full or shut down.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The last event of a job: `end` or `error`.
#[derive(Clone, Copy)]
pub enum JobOutcome {
    /// `end`: the job ended, or was canceled.
    End {
        /// The `stop_reason`.
        reason: &'static str,
        /// Index of the request's stop string that matched.
        stop: Option<u16>,
    },
    /// `error`: the job failed.
    Error(JobError<'static>),
}

/// The last event of a job for each end of its stream.
pub fn job_outcome(end: End) -> JobOutcome {
    match end {
        End::Stop(Stop::Eos | Stop::ToolCalls | Stop::StopString(ONE_CALL | TURN_END)) => {
            ended_outcome("EOS")
        }
        End::Stop(Stop::StopString(index)) => JobOutcome::End {
            reason: "STOP_SEQUENCE",
            stop: Some(index),
        },
        End::Length => ended_outcome("MAX_TOKENS"),
        End::Cancelled => ended_outcome("CANCELLED"),
        End::Deadline => error_outcome(
            JobErrorCode::Timeout,
            "the deadline of the job passed (deadline)",
            false,
        ),
        End::TimedOut(clock) => timed_out(clock),
        End::Failed(code) => failed_outcome(code),
        End::Lost => error_outcome(JobErrorCode::Internal, LOST_MESSAGE, true),
    }
}

/// The error response of a job that failed before its first frame was sent.
pub fn end_error(end: End) -> ApiError {
    match job_outcome(end) {
        JobOutcome::End { .. } => ApiError::caller(
            ErrorKind::Cancelled,
            JobErrorCode::Cancelled.name(),
            "the job was cancelled",
        ),
        JobOutcome::Error(JobError {
            code,
            message,
            retriable,
        }) => {
            let (kind, blame) = match JobErrorCode::from_name(code) {
                Some(JobErrorCode::Timeout) if !retriable => (ErrorKind::TimedOut, Blame::Ours),
                Some(JobErrorCode::Timeout | JobErrorCode::WorkerUnhealthy) => {
                    (ErrorKind::Unavailable, Blame::Capacity)
                }
                Some(JobErrorCode::InvalidRequest) => (ErrorKind::Invalid, Blame::Caller),
                Some(JobErrorCode::UpstreamFailed) => (ErrorKind::Upstream, Blame::Ours),
                _ => (ErrorKind::Internal, Blame::Ours),
            };
            let retry_after = (blame == Blame::Capacity).then_some(RETRY_AFTER);
            let error = ApiError::new(kind, blame, code, message);
            ApiError {
                retry_after,
                ..error
            }
        }
    }
}

fn timed_out(clock: Clock) -> JobOutcome {
    let (message, retriable) = match clock {
        Clock::Queue => ("waiting for a slot took too long (queue)", true),
        Clock::FirstToken => ("no first token in time (first_token)", false),
        Clock::Idle => ("no further token in time (idle)", false),
        Clock::Total => ("the job took too long (total)", false),
        Clock::Reader => ("the answer was not read in time (reader)", false),
    };
    error_outcome(JobErrorCode::Timeout, message, retriable)
}

fn failed_outcome(code: FailCode) -> JobOutcome {
    match code {
        FailCode::Inference => error_outcome(
            JobErrorCode::InferenceFailed,
            "the model failed on this job",
            true,
        ),
        FailCode::NotFinite => {
            error_outcome(JobErrorCode::InferenceFailed, NOT_FINITE_MESSAGE, false)
        }
        FailCode::Device => {
            error_outcome(JobErrorCode::InferenceFailed, DEVICE_FAILED_MESSAGE, true)
        }
        FailCode::Panic => error_outcome(
            JobErrorCode::Internal,
            "this job failed; others are not affected",
            true,
        ),
        FailCode::Shutdown => error_outcome(
            JobErrorCode::WorkerUnhealthy,
            "the server is shutting down",
            true,
        ),
        FailCode::Constraint => {
            error_outcome(JobErrorCode::InvalidRequest, GRAMMAR_LIMIT_MESSAGE, false)
        }
        FailCode::ModelChanged => {
            error_outcome(JobErrorCode::InferenceFailed, MODEL_CHANGED_MESSAGE, true)
        }
        FailCode::CrashedEngines => error_outcome(
            JobErrorCode::InferenceFailed,
            CRASHED_ENGINES_MESSAGE,
            false,
        ),
        FailCode::NoEngine => error_outcome(JobErrorCode::WorkerUnhealthy, NO_ENGINE_MESSAGE, true),
        FailCode::Upstream(place) => {
            error_outcome(JobErrorCode::UpstreamFailed, upstream_message(place), true)
        }
    }
}

fn ended_outcome(reason: &'static str) -> JobOutcome {
    JobOutcome::End { reason, stop: None }
}

fn error_outcome(code: JobErrorCode, message: &'static str, retriable: bool) -> JobOutcome {
    JobOutcome::Error(JobError {
        code: code.name(),
        message,
        retriable,
    })
}

/// Limit of a job id in bytes.
pub const JOB_ID_BYTES_MAX: usize = 64;
/// Error message for an invalid job id.
pub const JOB_ID_MESSAGE: &str =
    "must be 1 to 64 letters, digits, '.', '_' or '-', and not 32 lowercase hexadecimal digits";

/// A job id chosen by a caller. Text in the syntax of a stream id is invalid: a job without a chosen id has its
/// stream's id, which no other job may take.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobId(Box<str>);

impl JobId {
    /// Parses a job id; `None` for invalid text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let good = (1..=JOB_ID_BYTES_MAX).contains(&text.len())
            && text.bytes().all(is_good)
            // A path segment of dots only is resolved to another path.
            && text.bytes().any(|byte| byte != b'.')
            && text.parse::<StreamId>().is_err();
        good.then(|| Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An error in the jobs API and in WebSocket messages.
#[derive(Clone, Copy, JsonSchema, Serialize)]
pub struct JobError<'a> {
    /// Code of the error.
    pub code: &'static str,
    /// Message of the error.
    pub message: &'a str,
    /// Whether a retry may succeed.
    pub retriable: bool,
}

/// An error code of the jobs API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobErrorCode {
    /// The request is invalid.
    InvalidRequest,
    /// The admission queue is full, or the rate limit is reached.
    QueueFull,
    /// A deadline or clock passed.
    Timeout,
    /// The job was canceled.
    Cancelled,
    /// The request is larger than the KV cache.
    InsufficientResources,
    /// The model failed on the job.
    InferenceFailed,
    /// No model is ready, or it is not known yet which process has the stream.
    WorkerUnhealthy,
    /// An upstream failed on the job.
    UpstreamFailed,
    /// An error of the server.
    Internal,
}

impl<'a> JobError<'a> {
    /// Converts an error of any layer to the codes of the jobs API.
    pub fn new(error: &'a ApiError) -> Self {
        Self {
            code: JobErrorCode::from_error(error).name(),
            message: &error.message,
            retriable: is_retriable(error),
        }
    }
}

impl JobErrorCode {
    /// All codes.
    pub const ALL: [Self; 9] = [
        Self::InvalidRequest,
        Self::QueueFull,
        Self::Timeout,
        Self::Cancelled,
        Self::InsufficientResources,
        Self::InferenceFailed,
        Self::WorkerUnhealthy,
        Self::UpstreamFailed,
        Self::Internal,
    ];

    /// Name of the code in error responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::QueueFull => "QUEUE_FULL",
            Self::Timeout => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::InsufficientResources => "INSUFFICIENT_RESOURCES",
            Self::InferenceFailed => "INFERENCE_FAILED",
            Self::WorkerUnhealthy => "WORKER_UNHEALTHY",
            Self::UpstreamFailed => "UPSTREAM_FAILED",
            Self::Internal => "INTERNAL",
        }
    }

    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// The code of an error from any layer of the server.
    pub fn from_error(error: &ApiError) -> Self {
        if let Some(code) = Self::from_name(error.code) {
            return code;
        }
        match (error.code, error.blame) {
            ("timeout" | "deadline_unattainable", _) => Self::Timeout,
            ("cancelled", _) => Self::Cancelled,
            ("too_long_for_memory", _) => Self::InsufficientResources,
            ("inference_failed" | "device_failed" | "model_changed" | "crashed_engines", _) => {
                Self::InferenceFailed
            }
            ("upstream_failed" | "vision_model_failed", _) => Self::UpstreamFailed,
            (
                "shutting_down"
                | "model_loading"
                | "model_unloaded"
                | "model_failed"
                | "no_engine"
                | "model_files_missing"
                | "recovering"
                | "stream_moved",
                _,
            ) => Self::WorkerUnhealthy,
            _ if error.kind == ErrorKind::RateLimited => Self::QueueFull,
            (_, Blame::Capacity) => Self::QueueFull,
            (_, Blame::Caller) => Self::InvalidRequest,
            (_, Blame::Ours) => Self::Internal,
        }
    }
}

/// Whether a retry of the same request may succeed.
pub fn is_retriable(error: &ApiError) -> bool {
    match error.blame {
        Blame::Capacity => true,
        Blame::Caller => error.retry_after.is_some(),
        Blame::Ours => matches!(
            JobErrorCode::from_error(error),
            JobErrorCode::InferenceFailed | JobErrorCode::UpstreamFailed | JobErrorCode::Internal
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_id_is_bounded_and_fits_in_a_path() {
        let (longest, stream_id) = ("a".repeat(JOB_ID_BYTES_MAX), "ab".repeat(16));
        for good in ["a", "job-1", "A.b_c-9", &longest, &stream_id.to_uppercase()] {
            assert_eq!(JobId::parse(good).as_ref().map(JobId::as_str), Some(good));
        }
        let too_long = "a".repeat(JOB_ID_BYTES_MAX + 1);
        let bad = [
            "", ".", "..", "a b", "a/b", "é", "a\n", "%41", &too_long, &stream_id,
        ];
        for bad in bad {
            assert_eq!(JobId::parse(bad), None, "{bad:?}");
        }
    }
}
