//! What an answer's text is made of: what the user is told, what the model thinks, the tools it calls.
//!
//! | file | its noun |
//! |---|---|
//! | `parser` | the parser of one answer |
//! | `family`, `syntax` | the families of models, and how each writes |
//! | `detection` | which of them a model is of |
//! | `tagged`, `harmony` | the two machines that read answers |
//! | `body` | the machine that reads a call: `json_calls`, `named`, `params`, `python_calls`, `braced` |
//! | `literal`, `parameter_value` | values on their way to JSON |
//! | `schemas` | what the request's tools take |
//! | `openings`, `watched`, `written` | what opens calls, found while an answer is made, and grammars of how they go on |
//! | `part`, `out` | the pieces of an answer, and those on their way |

mod body;
mod braced;
mod call_form;
mod detection;
mod digits;
mod escape;
mod family;
mod flow;
mod harmony;
mod json_calls;
mod literal;
mod mark;
mod named;
mod openings;
mod out;
mod parameter_value;
mod params;
mod parser;
mod part;
mod python_calls;
mod schemas;
mod syntax;
mod tagged;
mod watched;
mod written;

pub use call_form::CallForm;
pub use family::{AnswerFormat, ReasoningFamily, ToolFamily};
pub use harmony::HEADER_BYTES_MAX;
pub use literal::NESTING_MAX;
pub use named::NAME_BYTES_MAX;
pub use parameter_value::VALUE_HELD_BYTES_MAX;
pub use parser::AnswerParser;
pub use part::{Part, PartSink};
pub use schemas::ToolSchemas;
pub use tagged::{BLANKS_HELD_MAX, HEAD_BYTES_MAX};
pub use watched::{MarkWatch, WatchedMarks};
pub use written::CalledTool;
pub(crate) use written::grammar as call_grammar;
