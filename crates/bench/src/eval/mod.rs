//! Evaluation: questions with known answers, sent to any server with OpenAI's chat API and checked by plain
//! rules.
//!
//! A line of the file is one [`EvalCase`]: the request body (`messages`, optionally `tools` or any other
//! field), the check of the answer, and the skill that the case counts for. Requests are non-streaming with
//! temperature 0, unless the case sets other values.

mod answer;
mod case;
mod check;
mod client;
mod options;
mod report;
mod verdict;

pub use answer::{ModelAnswer, ToolCall};
pub use case::{CASES_MAX, CaseError, EvalCase, parse};
pub use check::{AnswerCheck, ExpectedCall};
pub use client::run;
pub use options::{CLIENTS_MAX, EvalError, EvalOptions};
pub use report::{EvalReport, SkillRow, WrongAnswer};
