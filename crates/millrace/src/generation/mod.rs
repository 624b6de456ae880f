//! Answers of a loaded model on the terminal, through crate `generate`.
//!
//! ```text
//! options    flags -> parameters, tools, template variables   documents    schema file and tools file
//! generator  prompt -> events -> finished answer              interrupts   Ctrl-C ends an answer
//! printer    events -> standard output and standard error
//! ```

mod documents;
mod generator;
mod interrupts;
mod options;
mod printer;

pub(crate) use generator::{Answer, Generator};
pub(crate) use interrupts::{Interrupts, WhenIdle};
pub(crate) use options::AnswerOptions;
pub(crate) use printer::AnswerPrinter;
