//! One kind of error, that knows who can act on it. How it is spelled is a dialect's matter.

use axum::http::StatusCode;
use std::time::Duration;

/// A field of a request that cannot be taken as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Which field, as a path (`messages[2].content`).
    pub(crate) field: String,
    /// What it must be.
    pub(crate) constraint: String,
    /// What it was, as JSON: a short number or word, never text.
    pub(crate) value: Option<Box<str>>,
}

impl Problem {
    /// A field whose value is not repeated.
    pub(crate) fn new(field: impl Into<String>, constraint: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            constraint: constraint.into(),
            value: None,
        }
    }
}

/// Who can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The caller, by asking differently.
    Caller,
    /// The operator, or time: our capacity.
    Capacity,
    /// Nobody here: our failure.
    Ours,
}

/// Why a request got no answer.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) blame: Blame,
    pub(crate) code: &'static str,
    /// For people. Never holds prompt text or paths.
    pub(crate) message: String,
    /// The fields to blame, in the order they were looked at.
    pub(crate) problems: Vec<Problem>,
    /// When it may go better.
    pub(crate) retry_after: Option<Duration>,
}

impl ApiError {
    /// The caller's to mend.
    pub(crate) fn caller(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self::new(status, Blame::Caller, code, message)
    }

    /// A body that is not what it should be.
    pub(crate) fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::caller(StatusCode::BAD_REQUEST, code, message)
    }

    /// One field that turned out to be wrong after all fields had been read.
    pub(crate) fn field(field: &str, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let problem = Problem::new(field, message.clone());
        Self {
            problems: vec![problem],
            ..Self::bad_request(code, message)
        }
    }

    /// All bad fields at once.
    pub(crate) fn fields(problems: Vec<Problem>) -> Self {
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
    pub(crate) fn capacity(
        code: &'static str,
        message: impl Into<String>,
        retry_after: Duration,
    ) -> Self {
        let error = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            Blame::Capacity,
            code,
            message,
        );
        Self {
            retry_after: Some(retry_after),
            ..error
        }
    }

    /// A bug or a broken model: the operator's to mend.
    pub(crate) fn ours(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Blame::Ours,
            code,
            message,
        )
    }

    /// An error with everything said.
    pub(crate) fn new(
        status: StatusCode,
        blame: Blame,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            blame,
            code,
            message: message.into(),
            problems: Vec::new(),
            retry_after: None,
        }
    }
}
