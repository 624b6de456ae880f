//! Whom to ask, and why nothing was asked.

use crate::load::Target;
use std::fmt;
use std::time::Duration;

/// Requests that may be in flight.
pub const CLIENTS_MAX: usize = 1024;

/// Whom to ask, and how.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where.
    pub target: Target,
    /// The model's name; without one, none is sent.
    pub model: Option<String>,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// Requests in flight, from 1 to [`CLIENTS_MAX`].
    pub clients: usize,
    /// Of one answer.
    pub timeout: Duration,
}

/// Why nothing was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError(pub String);

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EvalError {}
