//! Answers of a loaded model on the terminal, through crate `generate`.
//!
//! ```text
//! options    flags, schema file and tools file -> parameters, tools, template variables
//! generator  prompt -> events -> finished answer
//! interrupts Ctrl-C ends an answer
//! printer    events -> standard output and standard error
//! ```

mod generator;
mod interrupts;
mod options;
mod printer;

pub(crate) use generator::{Answer, Generator, thread_waker};
pub(crate) use interrupts::{Interrupts, WhenIdle};
pub(crate) use options::AnswerOptions;
pub(crate) use printer::AnswerPrinter;
