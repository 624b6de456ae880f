//! Output parsing: separates an answer's text into content, reasoning and tool calls.
//!
//! | file | contents |
//! |---|---|
//! | `answer_parser` | the parser of one answer |
//! | `model_family`, `family_syntax` | families of models, and the syntax of each |
//! | `detection` | detection of a model's family |
//! | `delimited_parser`, `harmony_parser` | the two answer parsers: delimited text, and Harmony channels |
//! | `call_parser` | parsers of call bodies: `json_calls`, `named_call`, `tagged_call`, `python_calls`, `braced_call` |
//! | `value_converter`, `parameter_value` | conversion of values to JSON |
//! | `tool_schemas` | parameter types of the request's tools |
//! | `call_syntax` | syntax of a call after the opening delimiter |
//! | `watched_delimiter`, `delimiter_watch` | recognition of delimiters, token by token, during generation |
//! | `call_grammar` | grammars of calls for constrained decoding |
//! | `content_filter` | stop strings, which act on content only |
//! | `answer_parts`, `part_writer` | parts of an answer: their buffer, and the output of the parsers |

mod answer_parser;
mod answer_parts;
mod braced_call;
mod call_grammar;
mod call_parser;
mod call_syntax;
mod content_filter;
mod delimited_parser;
mod delimiter_watch;
mod detection;
mod family_syntax;
mod harmony_parser;
mod json_calls;
mod json_escape;
mod model_family;
mod named_call;
mod parameter_value;
mod part_writer;
mod python_calls;
mod step_result;
mod tagged_call;
mod tool_schemas;
mod value_converter;
mod watched_delimiter;

pub use answer_parser::AnswerParser;
pub use answer_parts::{AnswerParts, Part};
pub use call_grammar::ConstrainedTool;
pub(crate) use call_grammar::grammar as call_grammar;
pub use call_syntax::CallSyntax;
pub use delimited_parser::{BLANKS_HELD_MAX, HEAD_BYTES_MAX};
pub use delimiter_watch::{DelimiterSet, DelimiterWatch};
pub use harmony_parser::HEADER_BYTES_MAX;
pub use model_family::{AnswerFormat, ReasoningFamily, ToolFamily};
pub use named_call::NAME_BYTES_MAX;
pub use parameter_value::VALUE_HELD_BYTES_MAX;
pub use tool_schemas::ToolSchemas;
pub use value_converter::NESTING_MAX;
