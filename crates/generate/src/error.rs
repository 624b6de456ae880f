//! The error of a request: a kind, a code, and the party that can act. Wire protocols map errors to statuses and bodies.

use std::time::Duration;

/// An invalid field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field (`messages[2].content`).
    pub field: String,
    /// Description of a valid value.
    pub constraint: String,
    /// The value, as JSON: a short number or word, never text.
    pub value: Option<Box<str>>,
}

impl Problem {
    /// A problem without the value.
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
    /// The client, with another request.
    Caller,
    /// The operator, or time: capacity is used up.
    Capacity,
    /// The developers: a bug.
    Ours,
}

/// Kind of error, independent of any protocol.
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
    /// The client sent the request too slowly.
    RequestTimeout,
    /// The request contradicts the state of an object.
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

/// Why a request was not answered.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// Kind of error, independent of any protocol.
    pub kind: ErrorKind,
    /// The party that can act.
    pub blame: Blame,
    /// Stable name of the error, for programs.
    pub code: &'static str,
    /// For people. Never contains prompt text or paths.
    pub message: String,
    /// Invalid fields, in the order of validation.
    pub problems: Vec<Problem>,
    /// When a retry may succeed.
    pub retry_after: Option<Duration>,
    /// The position after which the client can read on.
    pub resume_after: Option<String>,
    /// The prompt is longer than the context.
    pub full_context: Option<FullContext>,
}

/// A prompt that leaves no room for an answer. Agents compact a conversation when they read this, in the words of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullContext {
    /// Tokens of the prompt and at least one of the answer; a lower bound where so long a text was not tokenized.
    pub tokens: usize,
    /// Tokens that prompt and answer may have together.
    pub tokens_max: usize,
}

impl ApiError {
    /// An error that the client can mend.
    pub fn caller(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(kind, Blame::Caller, code, message)
    }

    /// An invalid body.
    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::caller(ErrorKind::Invalid, code, message)
    }

    /// One field that turned out to be invalid after all fields were read.
    pub fn field(field: &str, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let problem = Problem::new(field, message.clone());
        Self {
            problems: vec![problem],
            ..Self::bad_request(code, message)
        }
    }

    /// A prompt of at least this number of tokens in this field, which leaves no room for an answer. The message has OpenAI's
    /// words; a protocol whose clients know other words writes its own.
    pub fn full_context(field: &str, prompt_tokens: usize, tokens_max: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {tokens_max} tokens. However, {field} has {prompt_tokens} tokens, and \
             one at least must be left for the answer. Please reduce the length of {field}."
        );
        Self {
            full_context: Some(FullContext {
                tokens: prompt_tokens.max(tokens_max + 1),
                tokens_max,
            }),
            ..Self::field(field, "context_length_exceeded", message)
        }
    }

    /// All invalid fields at once.
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

    /// Capacity is used up; the same request may succeed later.
    pub fn capacity(code: &'static str, message: impl Into<String>, retry_after: Duration) -> Self {
        let error = Self::new(ErrorKind::Unavailable, Blame::Capacity, code, message);
        Self {
            retry_after: Some(retry_after),
            ..error
        }
    }

    /// A bug or a broken model, for the operator.
    pub fn ours(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, Blame::Ours, code, message)
    }

    /// An error without fields and without a time to retry.
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
            resume_after: None,
            full_context: None,
        }
    }
}
