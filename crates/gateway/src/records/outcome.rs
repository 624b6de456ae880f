//! Outcomes of streams in the journal: the error of a stream that was rejected before its start, which later readers get
//! also after a restart; and notes on the end: a later process delivers each end that was not delivered, and does not
//! list an end as unread that was read.

use crate::locks::lock;
use generate::error::{ApiError, Blame, ErrorKind, FullContext, Problem};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::time::Duration;

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
    let mut codes = lock(&CODES);
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
}
