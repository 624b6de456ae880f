//! Parsing of one call: chooses among the parsers of call bodies.

use super::braced::Braced;
use super::escape::is_blank;
use super::flow::Flow;
use super::json_calls::JsonCalls;
use super::named::{Named, Naming};
use super::params::Params;
use super::part_writer::PartWriter;
use super::python_calls::PythonCalls;
use super::schemas::ToolSchemas;
use super::syntax::Body;
use std::sync::Arc;

/// The parser of a call body.
#[derive(Debug)]
pub(super) enum Machine {
    None,
    /// Before the first character, which selects the parser.
    Undecided(Body),
    Json(Box<JsonCalls>),
    Named(Box<Named>),
    Params(Box<Params>),
    Python(Box<PythonCalls>),
    Braced(Box<Braced>),
}

impl Machine {
    /// A parser placed after the delimiter that opens the call.
    pub(super) fn new(body: Body, schemas: Option<&Arc<ToolSchemas>>) -> Self {
        match body {
            Body::Json => Self::json(None),
            Body::BareJson => Self::json(schemas.map(Arc::clone)),
            Body::BarePython => Self::python(schemas.map(Arc::clone)),
            Body::JsonOrPython | Body::JsonOrNamed(_) => Self::Undecided(body),
            Body::Named(naming) => Self::named(naming),
            Body::Params(tags) => {
                let schemas = schemas.map(Arc::clone).unwrap_or_default();
                Self::Params(Box::new(Params::new(tags, schemas)))
            }
            Body::Braced(delimiter) => Self::Braced(Box::new(Braced::new(delimiter))),
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        match self {
            Self::None => Flow::DoneBefore,
            Self::Undecided(_) if is_blank(c) => Flow::More,
            Self::Undecided(body) => {
                *self = match body {
                    _ if matches!(c, '{' | '[') => Self::json(None),
                    Body::JsonOrNamed(naming) => Self::named(naming),
                    _ => Self::python(None),
                };
                self.step(c, out)
            }
            Self::Json(calls) => calls.step(c, out),
            Self::Named(call) => call.step(c, out),
            Self::Params(call) => call.step(c, out),
            Self::Python(calls) => calls.step(c, out),
            Self::Braced(call) => call.step(c, out),
        }
    }

    fn json(strict: Option<Arc<ToolSchemas>>) -> Self {
        Self::Json(Box::new(JsonCalls::new(strict)))
    }

    fn named(naming: &'static Naming) -> Self {
        Self::Named(Box::new(Named::new(naming)))
    }

    fn python(strict: Option<Arc<ToolSchemas>>) -> Self {
        Self::Python(Box::new(PythonCalls::new(strict)))
    }
}
