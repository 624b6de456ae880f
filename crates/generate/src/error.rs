//! The error of a request: its kind, a code, who can act on it. Wire protocols map it to a status and a body.

use std::time::Duration;

/// A field of a request that cannot be taken as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which field, as a path (`messages[2].content`).
    pub field: String,
    /// What it must be.
    pub constraint: String,
    /// What it was, as JSON: a short number or word, never text.
    pub value: Option<Box<str>>,
}

impl Problem {
    /// A field whose value is not repeated.
    pub fn new(field: impl Into<String>, constraint: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            constraint: constraint.into(),
            value: None,
        }
    }
}

/// The party that can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller, by asking differently.
    Caller,
    /// The operator, or time: our capacity.
    Capacity,
    /// Nobody here: our failure.
    Ours,
}

/// What is wrong, independent of any protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is malformed or a field is out of bounds.
    Invalid,
    /// No valid API key.
    Unauthenticated,
    /// The API key lacks a scope, or the origin is not allowed.
    Forbidden,
    /// Nothing is known under this name.
    NotFound,
    /// The path does not take this HTTP method.
    MethodNotAllowed,
    /// The client sent its request too slowly.
    RequestTimeout,
    /// The request contradicts the state of its object.
    Conflict,
    /// The object existed and is no longer kept.
    Gone,
    /// The body or the prompt exceeds a bound.
    TooLarge,
    /// The body has a content type or encoding that is not read.
    UnsupportedMedia,
    /// The request is addressed to another server.
    Misdirected,
    /// Well-formed, and impossible to process.
    Unprocessable,
    /// The path takes WebSocket connections only.
    UpgradeRequired,
    /// A rate limit of the API key.
    RateLimited,
    /// The client cancelled the request.
    Cancelled,
    /// A bug or a broken model.
    Internal,
    /// A feature that this server lacks.
    NotSupported,
    /// Another server that this one depends on failed.
    Upstream,
    /// No capacity now.
    Unavailable,
    /// A deadline or a clock of the request passed.
    TimedOut,
}

/// Why a request got no answer.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// What is wrong, independent of any protocol.
    pub kind: ErrorKind,
    /// The party that can act.
    pub blame: Blame,
    /// Stable name of the error, for programs.
    pub code: &'static str,
    /// For people. Never holds prompt text or paths.
    pub message: String,
    /// The fields to blame, in the order they were looked at.
    pub problems: Vec<Problem>,
    /// When it may go better.
    pub retry_after: Option<Duration>,
}

impl ApiError {
    /// The caller's to mend.
    pub fn caller(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(kind, Blame::Caller, code, message)
    }

    /// A body that is not what it should be.
    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::caller(ErrorKind::Invalid, code, message)
    }

    /// One field that turned out to be wrong after all fields had been read.
    pub fn field(field: &str, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let problem = Problem::new(field, message.clone());
        Self {
            problems: vec![problem],
            ..Self::bad_request(code, message)
        }
    }

    /// All bad fields at once.
    pub fn fields(problems: Vec<Problem>) -> Self {
        let lines: Vec<String> = problems
            .iter()
            .map(|p| format!("{}: {}", p.field, p.constraint))
            .collect();
        Self {
            problems,
            ..Self::bad_request("invalid_value", lines.join("; "))
        }
    }

    /// We are full; the same request may do later.
    pub fn capacity(code: &'static str, message: impl Into<String>, retry_after: Duration) -> Self {
        let error = Self::new(ErrorKind::Unavailable, Blame::Capacity, code, message);
        Self {
            retry_after: Some(retry_after),
            ..error
        }
    }

    /// A bug or a broken model: the operator's to mend.
    pub fn ours(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, Blame::Ours, code, message)
    }

    /// An error with everything said.
    pub fn new(
        kind: ErrorKind,
        blame: Blame,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            blame,
            code,
            message: message.into(),
            problems: Vec::new(),
            retry_after: None,
        }
    }
}
