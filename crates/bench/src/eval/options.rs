//! Options and errors of an evaluation.

use crate::load::Target;
use std::fmt;
use std::time::Duration;

/// Most concurrent requests.
pub const CLIENTS_MAX: usize = 1024;

/// Options of an evaluation.
#[derive(Clone, Debug)]
pub struct EvalOptions {
    /// Address of the server.
    pub target: Target,
    /// Name of the model; `None` sends no `model` field.
    pub model: Option<String>,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// Concurrent requests, from 1 to [`CLIENTS_MAX`].
    pub clients: usize,
    /// Timeout of one answer.
    pub timeout: Duration,
}

/// The evaluation could not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError(pub String);

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EvalError {}
