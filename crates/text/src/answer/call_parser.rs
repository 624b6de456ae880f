//! Parsing of one call: the syntax after the opening delimiter chooses among the parsers of call bodies.

use super::answer_parts::PartWriter;
use super::family_syntax::CallBody;
use super::harmony_parser::{CALL, CHANNEL, END, RETURN, START};
use super::json_calls::JsonCalls;
use super::named_call::{BracedCall, NameSyntax, NamedCall};
use super::python_calls::PythonCalls;
use super::tagged_call::TaggedCall;
use super::tool_schemas::ToolSchemas;
use super::value_converter::{StepResult, is_blank};
use std::sync::Arc;

/// The parser of a call body.
#[derive(Debug, Default)]
pub(super) enum CallParser {
    #[default]
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

/// Syntax of the text after an opening delimiter. Together with the tools, the source of a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSyntax(pub(super) CallSyntaxKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallSyntaxKind {
    /// A call body. The first text is the delimiter's own, where the delimiter is the beginning of the call; the second
    /// closes the call, if not empty.
    CallBody(CallBody, &'static str, &'static str),
    /// A part of a Harmony header (gpt-oss), and the messages after the header.
    Header(HeaderPart),
}

impl CallSyntax {
    /// A call in gpt-oss's `commentary` channel, from the recipient to the end of the arguments.
    pub const HARMONY_CALL: Self = Self(CallSyntaxKind::Header(HeaderPart::Recipient));
    /// A gpt-oss answer from the first header on; the first message may be a call.
    pub const HARMONY_FIRST: Self = Self(CallSyntaxKind::Header(HeaderPart::Tail));
}

/// The place in a Harmony header where generation continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderPart {
    /// Before the role.
    Role,
    /// After the role.
    Tail,
    /// After the token that opens a channel.
    Channel,
    /// After a message.
    After,
    /// At the recipient of a call, after the channel; extends to the end of the arguments.
    Recipient,
}

impl HeaderPart {
    /// Tokens that may begin a header, each with the place in the header that follows.
    pub(super) fn openings() -> [(&'static str, Self); 5] {
        let after = |mark| (mark, Self::After);
        [
            (START, Self::Role),
            (CHANNEL, Self::Channel),
            after(END),
            after(CALL),
            after(RETURN),
        ]
    }
}
