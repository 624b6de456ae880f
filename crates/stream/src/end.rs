//! Ends of streams, and their codes. Each stream has exactly one end; each wire protocol represents all of them.

/// Why a token log was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The model or the caller's stop condition ended the stream.
    Stop(Stop),
    /// `max_tokens` or the context length was reached.
    Length,
    /// Cancelled by a client, or abandoned by the last reader.
    Cancelled,
    /// The caller's own deadline passed.
    Deadline,
    /// One of the server's clocks fired.
    TimedOut(Clock),
    /// The generation failed; the engine continues.
    Failed(FailCode),
    /// The writer was dropped without an end: a bug, reported as such.
    Lost,
}

/// Cause of a regular stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// An end-of-sequence token.
    Eos,
    /// The stop string with this index in the request's list.
    StopString(u16),
    /// The model called tools and the client has to return their results.
    ToolCalls,
}

/// The server's timeout that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Waiting for admission.
    Queue,
    /// Admitted, but no first token.
    FirstToken,
    /// Running, but no token.
    Idle,
    /// The whole request.
    Total,
    /// The reader did not read for too long.
    Reader,
}

/// Machine-readable failure code; each wire protocol maps the codes to error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailCode {
    /// The forward pass reported an error.
    Inference,
    /// The model's logits or embedding contain NaN or infinity.
    NotFinite,
    /// A panic was caught in this request's work.
    Panic,
    /// The server is shutting down and the drain time has passed.
    Shutdown,
    /// The output constraint allows no token: a limit of the grammar was reached.
    Constraint,
    /// The device that computes the model failed, and could not be opened again.
    Device,
    /// The model was replaced by another one before the stream was complete, while no server ran.
    ModelChanged,
    /// The server crashed repeatedly while it computed this stream.
    CrashedEngines,
    /// No engine of another process, and no upstream, took the request in time.
    NoEngine,
    /// The upstream at this place of the configuration failed on the request, or went away in the middle of the answer.
    Upstream(u8),
}

/// First code of [`End::TimedOut`].
const TIMED_OUT: u32 = 16;
/// First code of [`End::Failed`].
const FAILED: u32 = 32;
/// First code of [`FailCode::Upstream`]; the place is added.
const UPSTREAM: u32 = 256;
/// First code of [`Stop::StopString`]; the index is added.
const STOP_STRING: u32 = 1 << 16;

/// Ends with a code of their own. The codes are final: files on disk have them, and instances of different versions exchange them.
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

impl End {
    /// The code of the end.
    pub fn code(self) -> u32 {
        match self {
            Self::Stop(Stop::StopString(index)) => STOP_STRING + u32::from(index),
            Self::Failed(FailCode::Upstream(place)) => UPSTREAM + u32::from(place),
            end => {
                let code = CODES.iter().find(|row| row.1 == end);
                code.map_or(0, |row| row.0)
            }
        }
    }

    /// The end with this code; [`End::Lost`] for codes that this version does not know.
    pub fn from_code(code: u32) -> Self {
        if let Some(index) = code.checked_sub(STOP_STRING) {
            let index = u16::try_from(index);
            return index.map_or(Self::Lost, |index| Self::Stop(Stop::StopString(index)));
        }
        if let Some(place) = code.checked_sub(UPSTREAM) {
            let place = u8::try_from(place);
            return place.map_or(Self::Lost, |place| Self::Failed(FailCode::Upstream(place)));
        }
        let end = CODES.iter().find(|row| row.0 == code);
        end.map_or(Self::Lost, |row| row.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ends with their codes, written out.
    const GOLDEN: [(u32, End); 25] = [
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
        for (code, end) in GOLDEN {
            assert_eq!((end.code(), End::from_code(code)), (code, end));
        }
    }

    #[test]
    fn unknown_end_codes_are_lost() {
        let known = |code: &u32| GOLDEN.iter().all(|(known, _)| known != code);
        let unknown = (0..65_536).filter(|code| !(256..512).contains(code));
        let unknown = unknown.filter(known);
        for code in unknown.chain([131_072, u32::MAX]) {
            assert_eq!(End::from_code(code), End::Lost, "{code}");
        }
        for index in 0..=u16::MAX {
            let end = End::Stop(Stop::StopString(index));
            assert_eq!(End::from_code(end.code()), end);
        }
    }
}
