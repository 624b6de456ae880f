//! Output parsing: separates an answer's text into content, reasoning and tool calls.
//!
//! | file | contents |
//! |---|---|
//! | `parser` | the parser of one answer |
//! | `family`, `syntax` | families of models, and the syntax of each |
//! | `detection` | detection of a model's family |
//! | `tagged`, `harmony` | the two answer parsers: delimited text, and Harmony channels |
//! | `body` | parsers of call bodies: `json_calls`, `named`, `params`, `python_calls`, `braced` |
//! | `literal`, `parameter_value` | conversion of values to JSON |
//! | `schemas` | parameter types of the request's tools |
//! | `call_form` | syntax of a call after the opening delimiter |
//! | `openings`, `mark`, `watched` | recognition of delimiters, token by token, during generation |
//! | `written` | grammars of calls for constrained decoding |
//! | `answer_parts`, `part_writer` | parts of an answer: their buffer, and the output of the parsers |

mod answer_parts;
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
mod parameter_value;
mod params;
mod parser;
mod part_writer;
mod python_calls;
mod schemas;
mod syntax;
mod tagged;
mod watched;
mod written;

pub use answer_parts::{AnswerParts, Part};
pub use call_form::CallSyntax;
pub use family::{AnswerFormat, ReasoningFamily, ToolFamily};
pub use harmony::HEADER_BYTES_MAX;
pub use literal::NESTING_MAX;
pub use named::NAME_BYTES_MAX;
pub use parameter_value::VALUE_HELD_BYTES_MAX;
pub use parser::AnswerParser;
pub use schemas::ToolSchemas;
pub use tagged::{BLANKS_HELD_MAX, HEAD_BYTES_MAX};
pub use watched::{DelimiterSet, DelimiterWatch};
pub use written::ConstrainedTool;
pub(crate) use written::grammar as call_grammar;
