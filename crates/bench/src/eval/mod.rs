//! What a model can do: questions with known answers, asked of any server of OpenAI's chat API, judged by plain checks.
//!
//! A line of the file is one [`Case`]: a request as the server gets it (`messages`, perhaps `tools` or anything else), what
//! must be true of its answer, and the skill it is counted under. Answers are asked for whole and with temperature 0,
//! unless the request says otherwise.

mod answer;
mod ask;
mod case;
mod check;
mod report;

pub use answer::{Answer, Call};
pub use ask::run;
pub use case::{CASES_MAX, Case, CaseError, parse};
pub use check::{Check, WantedCall};
pub use report::{Report, Row, Wrong};

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
