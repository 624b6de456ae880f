//! Which limit of a key a caller has exceeded, and the error message.

use generate::error::{ApiError, Blame, ErrorKind};
use std::num::NonZeroU32;
use std::time::Duration;

/// A limit of the caller's key that the request came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// Too many requests in the last minute.
    Requests { per_min: NonZeroU32, wait: Duration },
    /// Too many tokens in the last minute.
    Tokens { per_min: NonZeroU32, wait: Duration },
    /// Too many streams open.
    Streams { max: NonZeroU32, wait: Duration },
    /// A prompt that is more than a minute's worth, however long one waits.
    Prompt { per_min: NonZeroU32, tokens: u64 },
    /// More choices in one request than may be open at all.
    Choices { max: NonZeroU32, streams: u32 },
}

impl LimitExceeded {
    /// The limit's name, for metrics.
    pub(crate) fn limit_name(self) -> &'static str {
        match self {
            Self::Requests { .. } => "requests_per_min",
            Self::Tokens { .. } | Self::Prompt { .. } => "tokens_per_min",
            Self::Streams { .. } | Self::Choices { .. } => "concurrent_streams",
        }
    }

    /// Logs the limit for the operator.
    pub(crate) fn log_rejection(self, name: &str) {
        tracing::debug!(key = name, limit = self.limit_name(), "over its limit");
    }

    fn error_message(self) -> String {
        match self {
            Self::Requests { per_min, .. } => {
                format!("this key may make {per_min} requests per minute")
            }
            Self::Tokens { per_min, .. } => {
                format!("this key may use {per_min} tokens per minute, and has used them")
            }
            Self::Streams { max, .. } => {
                format!("this key may have {max} streams open at one time")
            }
            Self::Prompt { per_min, tokens } => {
                format!("the prompt has {tokens} tokens; this key may use {per_min} per minute")
            }
            Self::Choices { max, streams } => format!(
                "the request asks for {streams} answers; this key may have {max} open at one time"
            ),
        }
    }

    /// When a retry may succeed; `None`: never.
    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Requests { wait, .. }
            | Self::Tokens { wait, .. }
            | Self::Streams { wait, .. } => Some(wait),
            Self::Prompt { .. } | Self::Choices { .. } => None,
        }
    }
}

impl From<LimitExceeded> for ApiError {
    fn from(over: LimitExceeded) -> Self {
        let (kind, code) = match over {
            LimitExceeded::Requests { .. }
            | LimitExceeded::Tokens { .. }
            | LimitExceeded::Streams { .. } => (ErrorKind::RateLimited, "rate_limit_exceeded"),
            LimitExceeded::Prompt { .. } => (ErrorKind::TooLarge, "prompt_over_quota"),
            LimitExceeded::Choices { .. } => (ErrorKind::Invalid, "choices_over_quota"),
        };
        let error = Self::new(kind, Blame::Caller, code, over.error_message());
        Self {
            retry_after: over.retry_after(),
            ..error
        }
    }
}
