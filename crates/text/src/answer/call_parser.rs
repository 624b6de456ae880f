//! Parsing of one call: chooses among the parsers of call bodies.

use super::braced_call::BracedCall;
use super::family_syntax::CallBody;
use super::json_calls::JsonCalls;
use super::json_escape::is_blank;
use super::named_call::{NameSyntax, NamedCall};
use super::part_writer::PartWriter;
use super::python_calls::PythonCalls;
use super::step_result::StepResult;
use super::tagged_call::TaggedCall;
use super::tool_schemas::ToolSchemas;
use std::sync::Arc;

/// The parser of a call body.
#[derive(Debug)]
pub(super) enum CallParser {
    None,
    /// Before the first character, which selects the parser.
    Undecided(CallBody),
    /// Before the first item of a list, which selects the parser. Whether the bracket was consumed.
    UndecidedList(Option<Arc<ToolSchemas>>, bool),
    Json(Box<JsonCalls>),
    NamedCall(Box<NamedCall>),
    TaggedCall(Box<TaggedCall>),
    Python(Box<PythonCalls>),
    BracedCall(Box<BracedCall>),
}

impl CallParser {
    /// A parser placed after the delimiter that opens the call.
    pub(super) fn new(body: CallBody, schemas: Option<&Arc<ToolSchemas>>) -> Self {
        match body {
            CallBody::Json => Self::json(None),
            CallBody::BareJson => Self::json(schemas.map(Arc::clone)),
            CallBody::BarePython => Self::python(schemas.map(Arc::clone)),
            CallBody::BareList => Self::UndecidedList(schemas.map(Arc::clone), false),
            CallBody::JsonOrPython | CallBody::JsonOrNamed(_) => Self::Undecided(body),
            CallBody::NamedCall(naming) => Self::named(naming),
            CallBody::TaggedCall(tags) => {
                let schemas = schemas.map(Arc::clone).unwrap_or_default();
                Self::TaggedCall(Box::new(TaggedCall::new(tags, schemas)))
            }
            CallBody::BracedCall(delimiter) => {
                Self::BracedCall(Box::new(BracedCall::new(delimiter)))
            }
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        match self {
            Self::None => StepResult::DoneBefore,
            Self::Undecided(_) if is_blank(c) => StepResult::More,
            Self::Undecided(body) => {
                *self = match body {
                    _ if matches!(c, '{' | '[') => Self::json(None),
                    CallBody::JsonOrNamed(naming) => Self::named(naming),
                    _ => Self::python(None),
                };
                self.step(c, out)
            }
            Self::UndecidedList(_, is_open) if is_blank(c) || !*is_open => {
                *is_open = true;
                StepResult::More
            }
            Self::UndecidedList(strict, _) => {
                let strict = strict.take();
                *self = if c == '{' {
                    Self::json(strict)
                } else {
                    Self::python(strict)
                };
                self.step('[', out);
                self.step(c, out)
            }
            Self::Json(calls) => calls.step(c, out),
            Self::NamedCall(call) => call.step(c, out),
            Self::TaggedCall(call) => call.step(c, out),
            Self::Python(calls) => calls.step(c, out),
            Self::BracedCall(call) => call.step(c, out),
        }
    }

    fn json(strict: Option<Arc<ToolSchemas>>) -> Self {
        Self::Json(Box::new(JsonCalls::new(strict)))
    }

    fn named(naming: &'static NameSyntax) -> Self {
        Self::NamedCall(Box::new(NamedCall::new(naming)))
    }

    fn python(strict: Option<Arc<ToolSchemas>>) -> Self {
        Self::Python(Box::new(PythonCalls::new(strict)))
    }
}
