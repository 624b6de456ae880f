//! Errors of the jobs API, of durable streams and of WebSocket messages, and their codes: a small set for programs.

use generate::error::{ApiError, Blame, ErrorKind};
use schemars::JsonSchema;
use serde::Serialize;

/// An error in the jobs API and in WebSocket messages.
#[derive(Clone, Copy, JsonSchema, Serialize)]
pub struct JobError<'a> {
    /// Code of the error.
    pub code: &'static str,
    /// Message of the error.
    pub message: &'a str,
    /// Whether a retry may succeed.
    pub retriable: bool,
}

/// An error code of the jobs API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobErrorCode {
    /// The request is invalid.
    InvalidRequest,
    /// The admission queue is full, or the rate limit is reached.
    QueueFull,
    /// A deadline or clock passed.
    Timeout,
    /// The job was canceled.
    Cancelled,
    /// The request is larger than the KV cache.
    InsufficientResources,
    /// The model failed on the job.
    InferenceFailed,
    /// No model is ready, or it is not known yet which process has the stream.
    WorkerUnhealthy,
    /// An upstream failed on the job.
    UpstreamFailed,
    /// An error of the server.
    Internal,
}

impl<'a> JobError<'a> {
    /// Converts an error of any layer to the codes of the jobs API.
    pub fn new(error: &'a ApiError) -> Self {
        Self {
            code: JobErrorCode::from_error(error).name(),
            message: &error.message,
            retriable: is_retriable(error),
        }
    }
}

impl JobErrorCode {
    /// All codes.
    pub const ALL: [Self; 9] = [
        Self::InvalidRequest,
        Self::QueueFull,
        Self::Timeout,
        Self::Cancelled,
        Self::InsufficientResources,
        Self::InferenceFailed,
        Self::WorkerUnhealthy,
        Self::UpstreamFailed,
        Self::Internal,
    ];

    /// Name of the code in error responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::QueueFull => "QUEUE_FULL",
            Self::Timeout => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::InsufficientResources => "INSUFFICIENT_RESOURCES",
            Self::InferenceFailed => "INFERENCE_FAILED",
            Self::WorkerUnhealthy => "WORKER_UNHEALTHY",
            Self::UpstreamFailed => "UPSTREAM_FAILED",
            Self::Internal => "INTERNAL",
        }
    }

    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// The code of an error from any layer of the server.
    pub fn from_error(error: &ApiError) -> Self {
        if let Some(code) = Self::from_name(error.code) {
            return code;
        }
        match (error.code, error.blame) {
            ("timeout" | "deadline_unattainable", _) => Self::Timeout,
            ("cancelled", _) => Self::Cancelled,
            ("too_long_for_memory", _) => Self::InsufficientResources,
            ("inference_failed" | "device_failed" | "model_changed" | "crashed_engines", _) => {
                Self::InferenceFailed
            }
            ("upstream_failed", _) => Self::UpstreamFailed,
            (
                "shutting_down"
                | "model_loading"
                | "model_unloaded"
                | "model_failed"
                | "no_engine"
                | "model_files_missing"
                | "recovering"
                | "stream_moved",
                _,
            ) => Self::WorkerUnhealthy,
            _ if error.kind == ErrorKind::RateLimited => Self::QueueFull,
            (_, Blame::Capacity) => Self::QueueFull,
            (_, Blame::Caller) => Self::InvalidRequest,
            (_, Blame::Ours) => Self::Internal,
        }
    }
}

/// Whether a retry of the same request may succeed.
pub fn is_retriable(error: &ApiError) -> bool {
    match error.blame {
        Blame::Capacity => true,
        Blame::Caller => error.retry_after.is_some(),
        Blame::Ours => matches!(
            JobErrorCode::from_error(error),
            JobErrorCode::InferenceFailed | JobErrorCode::UpstreamFailed | JobErrorCode::Internal
        ),
    }
}
