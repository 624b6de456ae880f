//! Output parsing: separates an answer's text into content, reasoning and tool calls.
//!
//! | file | contents |
//! |---|---|
//! | `answer_parser` | the parser of one answer, with the stop strings, which act on content only |
//! | `model_family`, `family_syntax` | families of models and their detection, and the syntax of each |
//! | `delimited_parser`, `harmony_parser` | the two answer parsers: delimited text, and Harmony channels |
//! | `call_parser` | parsers of call bodies: `json_calls`, `named_call`, `tagged_call`, `python_calls` |
//! | `value_converter`, `parameter_value` | conversion of values to JSON |
//! | `tool_schemas` | parameter types of the request's tools |
//! | `delimiter_watch` | recognition of delimiters, token by token, during generation |
//! | `call_grammar` | grammars of calls for constrained decoding |
//! | `answer_parts` | parts of an answer: their buffer, and the output of the parsers |

mod answer_parser;
mod answer_parts;
mod call_grammar;
mod call_parser;
mod delimited_parser;
mod delimiter_watch;
mod family_syntax;
mod harmony_parser;
mod json_calls;
mod model_family;
mod named_call;
mod parameter_value;
mod python_calls;
mod tagged_call;
mod tool_schemas;
mod value_converter;

pub use answer_parser::AnswerParser;
pub use answer_parts::{AnswerParts, Part};
pub use call_grammar::ConstrainedTool;
pub(crate) use call_grammar::grammar as call_grammar;
pub use call_parser::CallSyntax;
pub use delimited_parser::{BLANKS_HELD_MAX, HEAD_BYTES_MAX};
pub use delimiter_watch::{DelimiterSet, DelimiterWatch};
pub use harmony_parser::HEADER_BYTES_MAX;
pub use model_family::{AnswerFormat, ReasoningFamily, ToolFamily};
pub use named_call::NAME_BYTES_MAX;
pub use parameter_value::VALUE_HELD_BYTES_MAX;
pub use tool_schemas::ToolSchemas;
pub use value_converter::NESTING_MAX;
