//! Ends of choices as numbers. Instances of different versions exchange the numbers, so they are final.

use stream::{Clock, End, FailCode, Stop};

/// First code of [`End::TimedOut`].
const TIMED_OUT: u32 = 16;
/// First code of [`End::Failed`].
const FAILED: u32 = 32;
/// First code of [`FailCode::Upstream`]; the place is added.
const UPSTREAM: u32 = 256;
/// First code of [`Stop::StopString`]; the index is added.
const STOP_STRING: u32 = 1 << 16;

/// Ends with a code of their own.
const CODES: [(u32, End); 20] = [
    (0, End::Lost),
    (1, End::Stop(Stop::Eos)),
    (2, End::Stop(Stop::ToolCalls)),
    (3, End::Length),
    (4, End::Cancelled),
    (5, End::Deadline),
    (TIMED_OUT, End::TimedOut(Clock::Queue)),
    (TIMED_OUT + 1, End::TimedOut(Clock::FirstToken)),
    (TIMED_OUT + 2, End::TimedOut(Clock::Idle)),
    (TIMED_OUT + 3, End::TimedOut(Clock::Total)),
    (TIMED_OUT + 4, End::TimedOut(Clock::Reader)),
    (FAILED, End::Failed(FailCode::Inference)),
    (FAILED + 1, End::Failed(FailCode::NotFinite)),
    (FAILED + 2, End::Failed(FailCode::Panic)),
    (FAILED + 3, End::Failed(FailCode::Shutdown)),
    (FAILED + 4, End::Failed(FailCode::Constraint)),
    (FAILED + 5, End::Failed(FailCode::ModelChanged)),
    (FAILED + 6, End::Failed(FailCode::CrashedEngines)),
    (FAILED + 7, End::Failed(FailCode::NoEngine)),
    (FAILED + 8, End::Failed(FailCode::Device)),
];

/// The code of an end.
pub(super) fn end_code(end: End) -> u32 {
    if let End::Stop(Stop::StopString(index)) = end {
        return STOP_STRING + u32::from(index);
    }
    if let End::Failed(FailCode::Upstream(place)) = end {
        return UPSTREAM + u32::from(place);
    }
    let code = CODES.iter().find(|row| row.1 == end);
    code.map_or(0, |row| row.0)
}

/// The end with this code; [`End::Lost`] for a code that this version does not have.
pub(super) fn end_from_code(code: u32) -> End {
    if let Some(index) = code.checked_sub(STOP_STRING) {
        return u16::try_from(index).map_or(End::Lost, |index| End::Stop(Stop::StopString(index)));
    }
    if let Some(place) = code.checked_sub(UPSTREAM) {
        return u8::try_from(place)
            .map_or(End::Lost, |place| End::Failed(FailCode::Upstream(place)));
    }
    let end = CODES.iter().find(|row| row.0 == code);
    end.map_or(End::Lost, |row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_back() {
        let stops = [0, 7, u16::MAX].map(|index| End::Stop(Stop::StopString(index)));
        let upstreams = [0, u8::MAX].map(|place| End::Failed(FailCode::Upstream(place)));
        let others = stops.into_iter().chain(upstreams);
        for end in CODES.iter().map(|row| row.1).chain(others) {
            assert_eq!(end_from_code(end_code(end)), end);
        }
    }

    #[test]
    fn unknown_codes_are_lost() {
        for code in [6, 15, 21, 31, 41, 65_535, STOP_STRING + 65_536, u32::MAX] {
            assert_eq!(end_from_code(code), End::Lost, "{code}");
        }
    }
}
