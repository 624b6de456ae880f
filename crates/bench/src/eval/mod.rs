//! What a model can do: questions with known answers, asked of any server of OpenAI's chat API, judged by plain checks.
//!
//! A line of the file is one [`Case`]: a request as the server gets it (`messages`, perhaps `tools` or anything else), what
//! must be true of its answer, and the skill it is counted under. Answers are asked for whole and with temperature 0,
//! unless the request says otherwise.

mod answer;
mod ask;
mod case;
mod check;
mod options;
mod report;
mod verdict;

pub use answer::{Answer, Call};
pub use ask::run;
pub use case::{CASES_MAX, Case, CaseError, parse};
pub use check::{Check, WantedCall};
pub use options::{CLIENTS_MAX, EvalError, Wish};
pub use report::{Report, Row, Wrong};
