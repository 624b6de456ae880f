//! Why a request gets no permit, and the `Retry-After` of the response.

use generate::error::{ApiError, Blame, ErrorKind};
use std::time::Duration;

/// Least `Retry-After`.
pub(crate) const RETRY_AFTER_MIN: Duration = Duration::from_millis(100);
/// The most: official clients disregard more.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Why a request got no permit. All but the first are our capacity (503 or 504); a caller's own quota (429) is the
/// keys' matter and decided before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// One choice alone is larger than the KV cache.
    NeverFits {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens reserved for the answer.
        answer_tokens: usize,
        /// Pages of one choice.
        pages_needed: usize,
        /// Pages of the KV cache.
        pages: usize,
    },
    /// As many wait as may.
    QueueFull {
        /// When to come back.
        retry_after: Duration,
    },
    /// The wait would be longer than the queue timeout.
    WaitTooLong {
        /// The predicted wait.
        predicted: Duration,
        /// When to come back.
        retry_after: Duration,
    },
    /// The request waited for the longest allowed time (timeout `queue`).
    QueueTimeout {
        /// How long the request has waited.
        waited: Duration,
        /// When to come back.
        retry_after: Duration,
    },
    /// The first token would come after the caller's deadline.
    Unattainable {
        /// The predicted wait.
        predicted: Duration,
        /// Time to the deadline.
        patience: Duration,
        /// When to come back.
        retry_after: Duration,
    },
    /// The request's deadline passed in the queue.
    DeadlinePassed,
    /// The server is shutting down.
    Closed {
        /// When to come back.
        retry_after: Duration,
    },
}

impl Rejection {
    /// When to come back, where that helps.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match *self {
            Self::NeverFits { .. } | Self::DeadlinePassed => None,
            Self::QueueFull { retry_after }
            | Self::WaitTooLong { retry_after, .. }
            | Self::QueueTimeout { retry_after, .. }
            | Self::Unattainable { retry_after, .. }
            | Self::Closed { retry_after } => Some(retry_after),
        }
    }

    /// A word for counters.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NeverFits { .. } => "never_fits",
            Self::QueueFull { .. } => "queue_full",
            Self::WaitTooLong { .. } => "wait_too_long",
            Self::QueueTimeout { .. } => "queue_timeout",
            Self::Unattainable { .. } => "deadline_unattainable",
            Self::DeadlinePassed => "deadline_passed",
            Self::Closed { .. } => "shutting_down",
        }
    }

    fn error_message(&self) -> String {
        match self {
            Self::NeverFits {
                prompt_tokens,
                answer_tokens,
                pages_needed,
                pages,
            } => format!(
                "a prompt of {prompt_tokens} tokens and an answer of {answer_tokens} need \
                 {pages_needed} pages of memory; this server has {pages}"
            ),
            Self::QueueFull { .. } => "too many requests are open on this server".to_owned(),
            Self::WaitTooLong { predicted, .. } => format!(
                "too many requests are waiting: this one would start in about {} ms",
                predicted.as_millis()
            ),
            Self::QueueTimeout { waited, .. } => format!(
                "the request waited too long in the queue: {} ms (queue)",
                waited.as_millis()
            ),
            Self::Unattainable {
                predicted,
                patience,
                ..
            } => format!(
                "the first token would take about {} ms; the deadline leaves {} ms",
                predicted.as_millis(),
                patience.as_millis()
            ),
            Self::DeadlinePassed => {
                "the deadline of the request passed while it waited (deadline)".to_owned()
            }
            Self::Closed { .. } => "the server is shutting down".to_owned(),
        }
    }

    fn error_code(&self) -> &'static str {
        match self {
            Self::NeverFits { .. } => "too_long_for_memory",
            Self::QueueFull { .. } | Self::WaitTooLong { .. } => "overloaded",
            Self::Unattainable { .. } => "deadline_unattainable",
            Self::QueueTimeout { .. } | Self::DeadlinePassed => "timeout",
            Self::Closed { .. } => "shutting_down",
        }
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let (code, words) = (rejection.error_code(), rejection.error_message());
        match (rejection, rejection.retry_after()) {
            (Rejection::DeadlinePassed, _) => {
                Self::new(ErrorKind::TimedOut, Blame::Ours, code, words)
            }
            (_, None) => Self::field("max_tokens", code, words),
            (_, Some(retry_after)) => Self::capacity(code, words, retry_after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rejection_has_a_kind_and_a_code() {
        let (s, ms) = (Duration::from_secs(1), Duration::from_millis(7));
        let rows = [
            (
                Rejection::NeverFits {
                    prompt_tokens: 3,
                    answer_tokens: 4,
                    pages_needed: 6,
                    pages: 5,
                },
                (ErrorKind::Invalid, "too_long_for_memory", None),
            ),
            (
                Rejection::QueueFull { retry_after: s },
                (ErrorKind::Unavailable, "overloaded", Some(s)),
            ),
            (
                Rejection::WaitTooLong {
                    predicted: s,
                    retry_after: ms,
                },
                (ErrorKind::Unavailable, "overloaded", Some(ms)),
            ),
            (
                Rejection::QueueTimeout {
                    waited: s,
                    retry_after: ms,
                },
                (ErrorKind::Unavailable, "timeout", Some(ms)),
            ),
            (
                Rejection::Unattainable {
                    predicted: s,
                    patience: ms,
                    retry_after: s,
                },
                (ErrorKind::Unavailable, "deadline_unattainable", Some(s)),
            ),
            (
                Rejection::DeadlinePassed,
                (ErrorKind::TimedOut, "timeout", None),
            ),
            (
                Rejection::Closed { retry_after: s },
                (ErrorKind::Unavailable, "shutting_down", Some(s)),
            ),
        ];
        for (rejection, want) in rows {
            let error = ApiError::from(rejection);
            assert_eq!(
                (error.kind, error.code, error.retry_after),
                want,
                "{rejection:?}"
            );
        }
    }
}
