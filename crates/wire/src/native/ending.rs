//! Stop reasons and errors of the jobs API for each end of a stream.

use super::code::Code;
use super::refusal::JobError;
use crate::openai::ending::{GRAMMAR_LIMIT_WORDS, NOT_FINITE};
use generate::error::{ApiError, Blame, ErrorKind};
use generate::stop::ONE_CALL;
use std::time::Duration;
use stream::{Clock, End, FailCode, Stop};

/// `Retry-After` of a server that was full or shut down.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The last event of a job: `end` or `error`.
#[derive(Clone, Copy)]
pub enum Ending {
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
pub fn spell(end: End) -> Ending {
    match end {
        End::Stop(Stop::Eos | Stop::ToolCalls | Stop::StopString(ONE_CALL)) => good("EOS"),
        End::Stop(Stop::StopString(index)) => Ending::End {
            reason: "STOP_SEQUENCE",
            stop: Some(index),
        },
        End::Length => good("MAX_TOKENS"),
        End::Cancelled => good("CANCELLED"),
        End::Deadline => bad(
            Code::Timeout,
            "the deadline of the job passed (deadline)",
            false,
        ),
        End::TimedOut(clock) => timed_out(clock),
        End::Failed(code) => failed(code),
        End::Lost => bad(Code::Internal, "the job ended without a reason", true),
    }
}

/// The error response of a job that failed before its first frame was sent.
pub fn refusal(end: End) -> ApiError {
    match spell(end) {
        Ending::End { .. } => ApiError::caller(
            ErrorKind::Cancelled,
            Code::Cancelled.name(),
            "the job was cancelled",
        ),
        Ending::Error(JobError {
            code,
            message,
            retriable,
        }) => {
            let (kind, blame) = match Code::named(code) {
                Some(Code::Timeout) if !retriable => (ErrorKind::TimedOut, Blame::Ours),
                Some(Code::Timeout | Code::WorkerUnhealthy) => {
                    (ErrorKind::Unavailable, Blame::Capacity)
                }
                Some(Code::InvalidRequest) => (ErrorKind::Invalid, Blame::Caller),
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

fn timed_out(clock: Clock) -> Ending {
    let (message, retriable) = match clock {
        Clock::Queue => ("waiting for a place took too long (queue)", true),
        Clock::FirstToken => ("no first token in time (first_token)", false),
        Clock::Idle => ("no further token in time (idle)", false),
        Clock::Total => ("the job took too long (total)", false),
        Clock::Reader => ("the answer was not read in time (reader)", false),
    };
    bad(Code::Timeout, message, retriable)
}

fn failed(code: FailCode) -> Ending {
    match code {
        FailCode::Inference => bad(Code::InferenceFailed, "the model failed on this job", true),
        FailCode::NotFinite => bad(Code::InferenceFailed, NOT_FINITE, false),
        FailCode::Panic => bad(
            Code::Internal,
            "this job failed; others are not affected",
            true,
        ),
        FailCode::Shutdown => bad(Code::WorkerUnhealthy, "the server is shutting down", true),
        FailCode::Constraint => bad(Code::InvalidRequest, GRAMMAR_LIMIT_WORDS, false),
    }
}

fn good(reason: &'static str) -> Ending {
    Ending::End { reason, stop: None }
}

fn bad(code: Code, message: &'static str, retriable: bool) -> Ending {
    Ending::Error(JobError {
        code: code.name(),
        message,
        retriable,
    })
}
