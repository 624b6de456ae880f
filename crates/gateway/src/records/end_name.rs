//! Names of ends, in the API and for people.

use generate::stop::{ONE_CALL, TURN_END};
use stream::{Clock, End, FailCode, Stop};

/// The name of an end, and the timeout that fired or the code of the failure.
pub(crate) fn end_name(end: End) -> (&'static str, Option<&'static str>) {
    match end {
        End::Stop(Stop::Eos | Stop::StopString(TURN_END)) => ("eos", None),
        End::Stop(Stop::ToolCalls | Stop::StopString(ONE_CALL)) => ("tool_calls", None),
        End::Stop(Stop::StopString(_)) => ("stop_string", None),
        End::Length => ("length", None),
        End::Cancelled => ("cancelled", None),
        End::Deadline => ("deadline", None),
        End::TimedOut(clock) => ("timed_out", Some(clock_name(clock))),
        End::Failed(code) => ("failed", Some(code_name(code))),
        End::Lost => ("lost", None),
    }
}

/// The end in words, such as `timed_out (queue)`.
pub fn end_words(end: End) -> String {
    match end_name(end) {
        (name, None) => name.to_owned(),
        (name, Some(detail)) => format!("{name} ({detail})"),
    }
}

fn clock_name(clock: Clock) -> &'static str {
    match clock {
        Clock::Queue => "queue",
        Clock::FirstToken => "first_token",
        Clock::Idle => "idle",
        Clock::Total => "total",
        Clock::Reader => "reader",
    }
}

fn code_name(code: FailCode) -> &'static str {
    match code {
        FailCode::Inference => "inference",
        FailCode::NotFinite => "not_finite",
        FailCode::Panic => "panic",
        FailCode::Shutdown => "shutdown",
        FailCode::Constraint => "constraint",
        FailCode::Device => "device",
        FailCode::ModelChanged => "model_changed",
        FailCode::CrashedEngines => "crashed_engines",
        FailCode::NoEngine => "no_engine",
        FailCode::Upstream(_) => "upstream_failed",
    }
}
