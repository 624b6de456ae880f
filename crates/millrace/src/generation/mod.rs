//! Answers of a loaded model on the terminal, through crate `generate`.
//!
//! ```text
//! options          flags, schema file and tools file -> parameters, tools, template variables
//! generator        prompt -> events -> finished answer, which Ctrl-C ends
//! printer          events -> standard output and standard error
//! typed_images     images that are named on the command line
//! image_describer  descriptions of images by another model
//! ```

mod generator;
mod image_describer;
mod options;
mod printer;
mod typed_images;

pub(crate) use generator::{Answer, Generator, Interrupts, WhenIdle, thread_waker};
pub(crate) use options::AnswerOptions;
pub(crate) use printer::AnswerPrinter;
pub(crate) use typed_images::{STANDARD_INPUT, read_image, read_piped_image};
