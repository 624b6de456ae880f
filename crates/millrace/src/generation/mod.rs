//! Answers of a loaded model on the terminal, through crate `generate`.
//!
//! ```text
//! options    flags, schema file and tools file -> parameters, tools, template variables
//! generator  prompt -> events -> finished answer, which Ctrl-C ends
//! printer    events -> standard output and standard error
//! ```

mod generator;
mod options;
mod printer;

pub(crate) use generator::{Answer, Generator, Interrupts, WhenIdle, thread_waker};
pub(crate) use options::AnswerOptions;
pub(crate) use printer::AnswerPrinter;
