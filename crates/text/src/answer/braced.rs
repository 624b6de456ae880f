//! Calls written as `call:name{key:value, ..}`, with string delimiters of the family.

use super::flow::Flow;
use super::literal::{Literal, Style};
use super::named::{NAME_BYTES_MAX, trimmed_name};
use super::part_writer::PartWriter;

/// Parser of one braced call.
#[derive(Debug)]
pub(super) struct Braced {
    delimiter: &'static str,
    head: String,
    literal: Option<Literal>,
}

impl Braced {
    /// A parser placed after the delimiter that opens the call.
    pub(super) fn new(delimiter: &'static str) -> Self {
        Self {
            delimiter,
            head: String::new(),
            literal: None,
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        if let Some(literal) = &mut self.literal {
            let flow = literal.step(c, out.arguments());
            if flow == Flow::Done {
                out.end_call();
            }
            return flow;
        }
        if c != '{' {
            if self.head.len() + c.len_utf8() > NAME_BYTES_MAX {
                return Flow::Fail;
            }
            self.head.push(c);
            return Flow::More;
        }
        out.count_examined(self.head.len());
        let name = self.head.trim_start().strip_prefix("call:");
        let Some(name) = name.and_then(trimmed_name) else {
            return Flow::Fail;
        };
        out.start_call(name, "");
        let style = Style::Delimited(self.delimiter);
        let literal = self.literal.insert(Literal::new(style));
        literal.step(c, out.arguments())
    }
}
