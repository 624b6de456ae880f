//! The `stop_reason` for each end of a stream.

use crate::shared::finish_reason;
use generate::error::ApiError;
use stream::{End, Stop};

/// The `stop_reason` of a completed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageStopReason {
    /// The `stop_reason`.
    pub(crate) reason: &'static str,
    /// Index of the request's stop string that matched.
    pub(crate) stop: Option<u16>,
}

/// The `stop_reason` of a completed message.
///
/// # Errors
/// The error of a stream that did not complete.
pub(crate) fn stop_reason(end: End) -> Result<MessageStopReason, ApiError> {
    let (reason, stop) = match end {
        End::Stop(Stop::Eos) => ("end_turn", None),
        End::Stop(Stop::StopString(index)) => ("stop_sequence", Some(index)),
        End::Stop(Stop::ToolCalls) => ("tool_use", None),
        End::Length => ("max_tokens", None),
        End::Cancelled | End::Deadline | End::TimedOut(_) | End::Failed(_) | End::Lost => {
            return Err(finish_reason::end_error(end));
        }
    };
    Ok(MessageStopReason { reason, stop })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic::error_response::{error_type, http_status};
    use stream::{Clock, FailCode};

    #[test]
    #[expect(clippy::too_many_lines, reason = "a row for each end")]
    fn every_end_has_a_stop_reason_or_an_error() {
        let rows = [
            (End::Stop(Stop::Eos), Ok(("end_turn", None))),
            (
                End::Stop(Stop::StopString(3)),
                Ok(("stop_sequence", Some(3))),
            ),
            (End::Stop(Stop::ToolCalls), Ok(("tool_use", None))),
            (End::Length, Ok(("max_tokens", None))),
            (End::Cancelled, Err((499, "api_error", "cancelled"))),
            (End::Deadline, Err((504, "timeout_error", "timeout"))),
            (
                End::TimedOut(Clock::Queue),
                Err((529, "overloaded_error", "timeout")),
            ),
            (
                End::TimedOut(Clock::FirstToken),
                Err((504, "timeout_error", "timeout")),
            ),
            (
                End::TimedOut(Clock::Idle),
                Err((504, "timeout_error", "timeout")),
            ),
            (
                End::TimedOut(Clock::Total),
                Err((504, "timeout_error", "timeout")),
            ),
            (
                End::TimedOut(Clock::Reader),
                Err((504, "timeout_error", "timeout")),
            ),
            (
                End::Failed(FailCode::Inference),
                Err((500, "api_error", "inference_failed")),
            ),
            (
                End::Failed(FailCode::NotFinite),
                Err((500, "api_error", "inference_failed")),
            ),
            (
                End::Failed(FailCode::Device),
                Err((500, "api_error", "device_failed")),
            ),
            (
                End::Failed(FailCode::Panic),
                Err((500, "api_error", "internal_error")),
            ),
            (
                End::Failed(FailCode::Shutdown),
                Err((503, "overloaded_error", "shutting_down")),
            ),
            (
                End::Failed(FailCode::Constraint),
                Err((400, "invalid_request_error", "grammar_limit")),
            ),
            (
                End::Failed(FailCode::ModelChanged),
                Err((500, "api_error", "model_changed")),
            ),
            (
                End::Failed(FailCode::CrashedEngines),
                Err((500, "api_error", "crashed_engines")),
            ),
            (
                End::Failed(FailCode::NoEngine),
                Err((529, "overloaded_error", "no_engine")),
            ),
            (
                End::Failed(FailCode::Upstream(0)),
                Err((502, "api_error", "upstream_failed")),
            ),
            (End::Lost, Err((500, "api_error", "lost"))),
        ];
        for (end, want) in rows {
            let got = stop_reason(end)
                .map(|stop_reason| (stop_reason.reason, stop_reason.stop))
                .map_err(|error| (http_status(&error).as_u16(), error_type(&error), error.code));
            assert_eq!(got, want, "{end:?}");
        }
    }
}
