//! Ends of streams: their codes in files, which never change, and their names in the API and for people.

use generate::stop::{ONE_CALL, TURN_END};
use stream::{Clock, End, FailCode, Stop};

/// First code of [`End::TimedOut`].
const TIMED_OUT: u32 = 16;
/// First code of [`End::Failed`].
const FAILED: u32 = 32;
/// First code of [`FailCode::Upstream`]; the place is added.
const UPSTREAM: u32 = 256;
/// First code of [`Stop::StopString`]; the index is added.
const STOP_STRING: u32 = 1 << 16;

/// The code of an end.
pub fn end_code(end: End) -> u32 {
    match end {
        End::Lost => 0,
        End::Stop(Stop::Eos) => 1,
        End::Stop(Stop::ToolCalls) => 2,
        End::Length => 3,
        End::Cancelled => 4,
        End::Deadline => 5,
        End::TimedOut(clock) => {
            TIMED_OUT
                + match clock {
                    Clock::Queue => 0,
                    Clock::FirstToken => 1,
                    Clock::Idle => 2,
                    Clock::Total => 3,
                    Clock::Reader => 4,
                }
        }
        End::Failed(FailCode::Upstream(place)) => UPSTREAM + u32::from(place),
        End::Failed(code) => {
            FAILED
                + match code {
                    FailCode::Inference => 0,
                    FailCode::NotFinite => 1,
                    FailCode::Panic => 2,
                    FailCode::Shutdown => 3,
                    FailCode::Constraint => 4,
                    FailCode::ModelChanged => 5,
                    FailCode::CrashedEngines => 6,
                    FailCode::NoEngine => 7,
                    FailCode::Device => 8,
                    // Above.
                    FailCode::Upstream(_) => UPSTREAM - FAILED,
                }
        }
        End::Stop(Stop::StopString(index)) => STOP_STRING + u32::from(index),
    }
}

/// The end with this code; [`End::Lost`] for codes that this version does not know.
pub fn end_from_code(code: u32) -> End {
    match code {
        1 => End::Stop(Stop::Eos),
        2 => End::Stop(Stop::ToolCalls),
        3 => End::Length,
        4 => End::Cancelled,
        5 => End::Deadline,
        TIMED_OUT..FAILED => match code - TIMED_OUT {
            0 => End::TimedOut(Clock::Queue),
            1 => End::TimedOut(Clock::FirstToken),
            2 => End::TimedOut(Clock::Idle),
            3 => End::TimedOut(Clock::Total),
            4 => End::TimedOut(Clock::Reader),
            _ => End::Lost,
        },
        UPSTREAM..STOP_STRING => match u8::try_from(code - UPSTREAM) {
            Ok(place) => End::Failed(FailCode::Upstream(place)),
            Err(_) => End::Lost,
        },
        FAILED..UPSTREAM => match code - FAILED {
            0 => End::Failed(FailCode::Inference),
            1 => End::Failed(FailCode::NotFinite),
            2 => End::Failed(FailCode::Panic),
            3 => End::Failed(FailCode::Shutdown),
            4 => End::Failed(FailCode::Constraint),
            5 => End::Failed(FailCode::ModelChanged),
            6 => End::Failed(FailCode::CrashedEngines),
            7 => End::Failed(FailCode::NoEngine),
            8 => End::Failed(FailCode::Device),
            _ => End::Lost,
        },
        _ => match u16::try_from(code.wrapping_sub(STOP_STRING)) {
            Ok(index) => End::Stop(Stop::StopString(index)),
            Err(_) => End::Lost,
        },
    }
}

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

#[cfg(test)]
mod tests {
    //! Promise (Descriptions of streams): each end has a code that never changes; unknown codes are `Lost`.

    use super::*;

    /// All ends with their codes. Files on disk have these codes.
    const CODES: [(u32, End); 25] = [
        (0, End::Lost),
        (1, End::Stop(Stop::Eos)),
        (2, End::Stop(Stop::ToolCalls)),
        (3, End::Length),
        (4, End::Cancelled),
        (5, End::Deadline),
        (16, End::TimedOut(Clock::Queue)),
        (17, End::TimedOut(Clock::FirstToken)),
        (18, End::TimedOut(Clock::Idle)),
        (19, End::TimedOut(Clock::Total)),
        (20, End::TimedOut(Clock::Reader)),
        (32, End::Failed(FailCode::Inference)),
        (33, End::Failed(FailCode::NotFinite)),
        (34, End::Failed(FailCode::Panic)),
        (35, End::Failed(FailCode::Shutdown)),
        (36, End::Failed(FailCode::Constraint)),
        (37, End::Failed(FailCode::ModelChanged)),
        (38, End::Failed(FailCode::CrashedEngines)),
        (39, End::Failed(FailCode::NoEngine)),
        (40, End::Failed(FailCode::Device)),
        (256, End::Failed(FailCode::Upstream(0))),
        (511, End::Failed(FailCode::Upstream(u8::MAX))),
        (65_536, End::Stop(Stop::StopString(0))),
        (65_537, End::Stop(Stop::StopString(1))),
        (131_071, End::Stop(Stop::StopString(u16::MAX))),
    ];

    #[test]
    fn end_codes_are_golden() {
        for (code, end) in CODES {
            assert_eq!((end_code(end), end_from_code(code)), (code, end));
        }
    }

    #[test]
    fn unknown_end_codes_are_lost() {
        let known = |code: &u32| CODES.iter().all(|(known, _)| known != code);
        let unknown = (0..65_536).filter(|code| !(256..512).contains(code));
        let unknown = unknown.filter(known);
        for code in unknown.chain([131_072, u32::MAX]) {
            assert_eq!(end_from_code(code), End::Lost, "{code}");
        }
        for index in 0..=u16::MAX {
            let end = End::Stop(Stop::StopString(index));
            assert_eq!(end_from_code(end_code(end)), end);
        }
    }
}
