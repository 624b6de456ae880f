//! How the native format spells each ending.

use super::code::Code;
use crate::wire::openai::ending::{GRAMMAR_LIMIT_WORDS, NOT_FINITE};
use generate::error::{ApiError, Blame, ErrorKind};
use generate::stop::ONE_CALL;
use std::time::Duration;
use stream::{Clock, End, FailCode, Stop};

/// When to come back to a server that was full or went down.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An ending in words: the `end` event, or the `error` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    End {
        reason: &'static str,
        /// Which of the request's stop strings it was.
        stop: Option<u16>,
    },
    Error {
        code: Code,
        message: &'static str,
        retriable: bool,
    },
}

/// Every ending is spelled; none is silent.
pub(crate) fn spell(end: End) -> Ending {
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

/// The ending of a job nothing was told of yet, as the answer to its request.
pub(crate) fn refusal(end: End) -> ApiError {
    match spell(end) {
        Ending::End { .. } => ApiError::caller(
            ErrorKind::Cancelled,
            Code::Cancelled.name(),
            "the job was cancelled",
        ),
        Ending::Error {
            code,
            message,
            retriable,
        } => {
            let (kind, blame) = match code {
                Code::Timeout if !retriable => (ErrorKind::TimedOut, Blame::Ours),
                Code::Timeout | Code::WorkerUnhealthy => (ErrorKind::Unavailable, Blame::Capacity),
                Code::InvalidRequest => (ErrorKind::Invalid, Blame::Caller),
                _ => (ErrorKind::Internal, Blame::Ours),
            };
            let retry_after = (blame == Blame::Capacity).then_some(RETRY_AFTER);
            let error = ApiError::new(kind, blame, code.name(), message);
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
    Ending::Error {
        code,
        message,
        retriable,
    }
}
