//! The `finish_reason` of OpenAI's protocols for each end of a stream, and the error messages of failed streams in all
//! protocols.

use generate::error::{ApiError, Blame, ErrorKind};
use std::sync::LazyLock;
use std::time::Duration;
use stream::{Clock, End, FailCode, Stop};

/// Error code of an answer that reached a limit of its grammar.
pub const GRAMMAR_LIMIT: &str = "grammar_limit";
/// Error message of [`GRAMMAR_LIMIT`].
pub const GRAMMAR_LIMIT_MESSAGE: &str = "the grammar of this answer reached a limit: the next token \
    would take more work or memory than a token may; simplify the schema, expression or grammar";
/// `Retry-After` of a server that was full or shut down.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Error message of a stream whose model's device failed, in every protocol.
pub const DEVICE_FAILED_MESSAGE: &str =
    "the device that computes the model failed and could not be opened again; try again later";

/// Error message for logits that are NaN or infinite, in every protocol: the weights are damaged.
pub const NOT_FINITE_MESSAGE: &str = "the model failed on this request: its logits are NaN or infinite, so its weights \
                                     are damaged or were converted wrongly";

/// Error message of a stream that cannot be continued because another model has the name now, in every protocol.
pub const MODEL_CHANGED_MESSAGE: &str = "the model was replaced while the server was down, so this answer cannot be \
                                        continued; send the request again";

/// Error message of a stream that no engine of another process took, in every protocol.
pub const NO_ENGINE_MESSAGE: &str = "no engine of the cluster, or no upstream, took the request in time; \
                                    /health/readiness says why; send the request again";
/// Error code of a stream that an upstream did not complete.
pub const UPSTREAM_FAILED: &str = "upstream_failed";

/// Error message of a stream that is given up after repeated crashes, in every protocol.
pub const CRASHED_ENGINES_MESSAGE: &str = "the server crashed repeatedly while it computed this answer, so the answer \
                                          is not continued";

/// Error message of a stream whose rest is lost, in every protocol.
pub const LOST_MESSAGE: &str = "the rest of this answer is lost: the engine that computed it is gone, or \
                               records of it are missing after a restart, so it cannot be continued exactly; what was \
                               sent is a valid beginning; send the request again for a whole answer";

/// Error message of a stream that an upstream did not complete, by the upstream's place in the configuration, in every
/// protocol.
pub fn upstream_message(place: u8) -> &'static str {
    static MESSAGES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let message = |number| {
            format!(
                "upstream {number} failed on this request, or went away in the middle of the answer (number {number} \
                 of upstream.addresses; the log of this server has the reason); what was sent is a valid beginning"
            )
        };
        (1..=256).map(message).collect()
    });
    &MESSAGES[usize::from(place)]
}

/// The error of a stream that did not complete.
pub fn end_error(end: End) -> ApiError {
    let error = finish_reason(end).err();
    error
        .unwrap_or_else(|| ApiError::ours("internal_error", "a stream that completed has no error"))
}

/// The `finish_reason` of a completed stream.
///
/// # Errors
/// The error of a stream that did not complete.
pub fn finish_reason(end: End) -> Result<&'static str, ApiError> {
    match end {
        End::Stop(Stop::Eos | Stop::StopString(_)) => Ok("stop"),
        End::Stop(Stop::ToolCalls) => Ok("tool_calls"),
        End::Length => Ok("length"),
        End::Cancelled => Err(ApiError::caller(
            ErrorKind::Cancelled,
            "cancelled",
            "the request was cancelled",
        )),
        End::Deadline => Err(timeout_error(
            "the deadline of the request passed (deadline)",
        )),
        End::TimedOut(clock) => Err(timed_out_error(clock)),
        End::Failed(code) => Err(failed_error(code)),
        End::Lost => Err(ApiError::ours("lost", LOST_MESSAGE)),
    }
}

fn timed_out_error(clock: Clock) -> ApiError {
    match clock {
        Clock::Queue => ApiError::capacity(
            "timeout",
            "waiting for a slot took too long (queue)",
            RETRY_AFTER,
        ),
        Clock::FirstToken => timeout_error("no first token in time (first_token)"),
        Clock::Idle => timeout_error("no further token in time (idle)"),
        Clock::Total => timeout_error("the request took too long (total)"),
        Clock::Reader => timeout_error("the answer was not read in time (reader)"),
    }
}

fn failed_error(code: FailCode) -> ApiError {
    match code {
        FailCode::Inference => {
            ApiError::ours("inference_failed", "the model failed on this request")
        }
        FailCode::NotFinite => ApiError::ours("inference_failed", NOT_FINITE_MESSAGE),
        FailCode::Device => ApiError::ours("device_failed", DEVICE_FAILED_MESSAGE),
        FailCode::Panic => ApiError::ours(
            "internal_error",
            "this request failed; others are not affected",
        ),
        FailCode::Shutdown => {
            ApiError::capacity("shutting_down", "the server is shutting down", RETRY_AFTER)
        }
        FailCode::Constraint => ApiError::bad_request(GRAMMAR_LIMIT, GRAMMAR_LIMIT_MESSAGE),
        FailCode::ModelChanged => ApiError::ours("model_changed", MODEL_CHANGED_MESSAGE),
        FailCode::CrashedEngines => ApiError::ours("crashed_engines", CRASHED_ENGINES_MESSAGE),
        FailCode::NoEngine => ApiError::capacity("no_engine", NO_ENGINE_MESSAGE, RETRY_AFTER),
        FailCode::Upstream(place) => ApiError::new(
            ErrorKind::Upstream,
            Blame::Ours,
            UPSTREAM_FAILED,
            upstream_message(place),
        ),
    }
}

fn timeout_error(error_message: &str) -> ApiError {
    ApiError::new(ErrorKind::TimedOut, Blame::Ours, "timeout", error_message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::error_response::status_code;

    #[test]
    fn every_end_has_a_finish_reason_or_an_error() {
        let rows = [
            (End::Stop(Stop::Eos), Ok("stop")),
            (End::Stop(Stop::StopString(3)), Ok("stop")),
            (End::Stop(Stop::ToolCalls), Ok("tool_calls")),
            (End::Length, Ok("length")),
            (End::Cancelled, Err((499, "cancelled"))),
            (End::Deadline, Err((504, "timeout"))),
            (End::TimedOut(Clock::Queue), Err((503, "timeout"))),
            (End::TimedOut(Clock::FirstToken), Err((504, "timeout"))),
            (End::TimedOut(Clock::Idle), Err((504, "timeout"))),
            (End::TimedOut(Clock::Total), Err((504, "timeout"))),
            (End::TimedOut(Clock::Reader), Err((504, "timeout"))),
            (
                End::Failed(FailCode::Inference),
                Err((500, "inference_failed")),
            ),
            (
                End::Failed(FailCode::NotFinite),
                Err((500, "inference_failed")),
            ),
            (End::Failed(FailCode::Device), Err((500, "device_failed"))),
            (End::Failed(FailCode::Panic), Err((500, "internal_error"))),
            (End::Failed(FailCode::Shutdown), Err((503, "shutting_down"))),
            (
                End::Failed(FailCode::Constraint),
                Err((400, "grammar_limit")),
            ),
            (
                End::Failed(FailCode::ModelChanged),
                Err((500, "model_changed")),
            ),
            (
                End::Failed(FailCode::CrashedEngines),
                Err((500, "crashed_engines")),
            ),
            (End::Failed(FailCode::NoEngine), Err((503, "no_engine"))),
            (
                End::Failed(FailCode::Upstream(255)),
                Err((502, "upstream_failed")),
            ),
            (End::Lost, Err((500, "lost"))),
        ];
        for (end, want) in rows {
            assert_eq!(
                finish_reason(end).map_err(|e| (status_code(e.kind).as_u16(), e.code)),
                want,
                "{end:?}"
            );
        }
    }
}
