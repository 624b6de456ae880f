//! Outcomes of streams in the journal: the error of a stream that was rejected before its start, which later readers get
//! also after a restart; and notes on the end: a later process delivers each end that was not delivered, and does not
//! list an end as unread that was read.

use generate::error::{ApiError, Blame, ErrorKind, FullContext, Problem};
use generate::stop::{ONE_CALL, TURN_END};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stream::{Clock, End, FailCode, Stop};

/// Error codes that were read from journals and that live as long as the process.
const CODES_MAX: usize = 256;

/// Bytes of such a code.
const CODE_BYTES_MAX: usize = 64;

/// Kinds of errors by name. The names are final: files on disk have them.
const KINDS: [(ErrorKind, &str); 20] = [
    (ErrorKind::Invalid, "invalid"),
    (ErrorKind::Unauthenticated, "unauthenticated"),
    (ErrorKind::Forbidden, "forbidden"),
    (ErrorKind::NotFound, "not_found"),
    (ErrorKind::MethodNotAllowed, "method_not_allowed"),
    (ErrorKind::RequestTimeout, "request_timeout"),
    (ErrorKind::Conflict, "conflict"),
    (ErrorKind::Gone, "gone"),
    (ErrorKind::TooLarge, "too_large"),
    (ErrorKind::UnsupportedMedia, "unsupported_media"),
    (ErrorKind::Misdirected, "misdirected"),
    (ErrorKind::Unprocessable, "unprocessable"),
    (ErrorKind::UpgradeRequired, "upgrade_required"),
    (ErrorKind::RateLimited, "rate_limited"),
    (ErrorKind::Cancelled, "cancelled"),
    (ErrorKind::Internal, "internal"),
    (ErrorKind::NotSupported, "not_supported"),
    (ErrorKind::Upstream, "upstream"),
    (ErrorKind::Unavailable, "unavailable"),
    (ErrorKind::TimedOut, "timed_out"),
];

const BLAMES: [(Blame, &str); 3] = [
    (Blame::Caller, "caller"),
    (Blame::Capacity, "capacity"),
    (Blame::Ours, "ours"),
];

/// An error as JSON.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct RecordedError {
    kind: String,
    blame: String,
    code: String,
    message: String,
    problems: Vec<RecordedProblem>,
    retry_after_ms: Option<u64>,
    /// Tokens of a prompt that is longer than the context, and tokens of the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    full_context: Option<(usize, usize)>,
    /// `None` before the first note.
    #[serde(skip_serializing_if = "Option::is_none")]
    noted: Option<NotedEnd>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct RecordedProblem {
    field: String,
    constraint: String,
    value: Option<Box<str>>,
}

/// The error as the body of [`journal::Record::Kept`].
pub fn encode(error: &ApiError) -> Vec<u8> {
    // Strings and numbers are always JSON.
    serde_json::to_vec(&recorded_error(error)).unwrap_or_default()
}

/// The outcome of a stream with notes on its end. `error`: why the stream never started.
pub(crate) fn encode_noted(error: Option<&ApiError>, noted: NotedEnd) -> Vec<u8> {
    #[derive(Serialize)]
    struct Noted {
        noted: NotedEnd,
    }
    let encoded = match error {
        Some(error) => serde_json::to_vec(&RecordedError {
            noted: Some(noted),
            ..recorded_error(error)
        }),
        None => serde_json::to_vec(&Noted { noted }),
    };
    encoded.unwrap_or_default()
}

/// The notes on the end in an outcome.
pub(crate) fn noted_end(body: &[u8]) -> NotedEnd {
    let recorded: RecordedError = serde_json::from_slice(body).unwrap_or_default();
    recorded.noted.unwrap_or_default()
}

fn recorded_error(error: &ApiError) -> RecordedError {
    let problem = |problem: &Problem| RecordedProblem {
        field: problem.field.clone(),
        constraint: problem.constraint.clone(),
        value: problem.value.clone(),
    };
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    RecordedError {
        kind: name_of(&KINDS, error.kind).to_owned(),
        blame: name_of(&BLAMES, error.blame).to_owned(),
        code: error.code.to_owned(),
        message: error.message.clone(),
        problems: error.problems.iter().map(problem).collect(),
        retry_after_ms: error.retry_after.map(milliseconds),
        full_context: error
            .full_context
            .as_ref()
            .map(|full| (full.tokens, full.tokens_max)),
        noted: None,
    }
}

/// The error of a body; `None` where the stream was not rejected. Unknown kinds and codes are those of an internal error.
pub fn decode(body: &[u8]) -> Option<ApiError> {
    let recorded: RecordedError = serde_json::from_slice(body).unwrap_or_default();
    if recorded.noted.is_some() && recorded.kind.is_empty() {
        return None;
    }
    let problem = |problem: RecordedProblem| Problem {
        field: problem.field,
        constraint: problem.constraint,
        value: problem.value,
    };
    Some(ApiError {
        kind: find_name(&KINDS, &recorded.kind).unwrap_or(ErrorKind::Internal),
        blame: find_name(&BLAMES, &recorded.blame).unwrap_or(Blame::Ours),
        code: static_code(&recorded.code),
        message: recorded.message,
        problems: recorded.problems.into_iter().map(problem).collect(),
        retry_after: recorded.retry_after_ms.map(Duration::from_millis),
        resume_after: None,
        full_context: recorded
            .full_context
            .map(|(tokens, tokens_max)| Box::new(FullContext { tokens, tokens_max })),
    })
}

/// Whether the outcome of a stream is an error before the start.
pub fn is_rejection(outcome: &[u8]) -> bool {
    decode(outcome).is_some()
}

fn name_of<T: Copy + PartialEq>(names: &[(T, &'static str)], value: T) -> &'static str {
    let found = names.iter().find(|(known, _)| *known == value);
    found.map_or("", |(_, name)| name)
}

fn find_name<T: Copy>(names: &[(T, &'static str)], name: &str) -> Option<T> {
    let found = names.iter().find(|(_, known)| *known == name);
    found.map(|(value, _)| *value)
}

/// A code that lives as long as the process. There are few codes; the number of those from edited files is bounded.
fn static_code(code: &str) -> &'static str {
    static CODES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut codes = CODES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = codes.iter().find(|known| **known == code) {
        return known;
    }
    if code.is_empty() || code.len() > CODE_BYTES_MAX || codes.len() >= CODES_MAX {
        return "internal_error";
    }
    let code: &'static str = Box::leak(code.into());
    codes.push(code);
    code
}

/// Notes on an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NotedEnd {
    /// The delivery of the webhook was recorded.
    pub(crate) webhook: bool,
    /// A reader has the end, or a client has acknowledged it.
    pub(crate) read: bool,
}

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
    use super::*;

    #[test]
    fn error_is_read_back() {
        let errors = [
            ApiError::field("min_tokens", "invalid_value", "min_tokens: is too large"),
            ApiError::capacity("overloaded", "later", Duration::from_secs(7)),
            ApiError::ours("internal_error", "a bug"),
            ApiError::full_context("messages", 3013, 2048),
        ];
        for error in errors {
            let read = decode(&encode(&error)).expect("an error");
            assert_eq!(format!("{read:?}"), format!("{error:?}"));
            let noted = NotedEnd {
                webhook: true,
                read: true,
            };
            let body = encode_noted(Some(&error), noted);
            let read = decode(&body).expect("an error");
            assert_eq!(format!("{read:?}"), format!("{error:?}"));
            assert_eq!(noted_end(&body), noted);
            assert_eq!(noted_end(&encode(&error)), NotedEnd::default());
        }
    }

    #[test]
    fn noted_end_is_no_rejection() {
        let noted = NotedEnd {
            webhook: true,
            read: true,
        };
        let body = encode_noted(None, noted);
        assert_eq!(body, br#"{"noted":{"webhook":true,"read":true}}"#);
        // Another version may note something else.
        let other = br#"{"noted":{"webhook":true,"other":true}}"#;
        let unread = NotedEnd {
            read: false,
            ..noted
        };
        for (body, noted) in [(&body[..], noted), (other, unread)] {
            assert!(decode(body).is_none());
            assert_eq!(noted_end(body), noted);
        }
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        for (kind, name) in KINDS {
            assert_eq!(find_name(&KINDS, name), Some(kind), "{name}");
            assert_eq!(name_of(&KINDS, kind), name);
        }
    }

    #[test]
    fn damaged_body_is_an_internal_error() {
        for body in ["", "[]", "{\"kind\": 7}", "{\"code\": \"\"}"] {
            let error = decode(body.as_bytes()).expect("an error");
            assert_eq!(
                (error.kind, error.code),
                (ErrorKind::Internal, "internal_error"),
                "{body}"
            );
        }
    }

    #[test]
    fn encoding_is_stable() {
        let json = r#"{"kind":"unavailable","blame":"capacity","code":"overloaded","message":"later","problems":[],"retry_after_ms":7000}"#;
        let error = ApiError::capacity("overloaded", "later", Duration::from_secs(7));
        assert_eq!(String::from_utf8(encode(&error)).expect("UTF-8"), json);
    }

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
