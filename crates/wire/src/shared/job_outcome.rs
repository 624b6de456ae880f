//! Stop reasons and errors of this server's own protocols for each end of a stream.

use super::finish_reason::{
    CRASHED_ENGINES_MESSAGE, DEVICE_FAILED_MESSAGE, GRAMMAR_LIMIT_MESSAGE, LOST_MESSAGE,
    MODEL_CHANGED_MESSAGE, NO_ENGINE_MESSAGE, NOT_FINITE_MESSAGE, upstream_message,
};
use super::job_error::{JobError, JobErrorCode};
use generate::error::{ApiError, Blame, ErrorKind};
use generate::stop::{ONE_CALL, TURN_END};
use std::time::Duration;
use stream::{Clock, End, FailCode, Stop};

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
