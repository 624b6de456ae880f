//! Calls written as `call:name{key:value, ..}`, with string delimiters of the family.

use super::named_call::{NAME_BYTES_MAX, trimmed_name};
use super::part_writer::PartWriter;
use super::step_result::StepResult;
use super::value_converter::{ValueConverter, ValueStyle};

/// Parser of one braced call.
#[derive(Debug)]
pub(super) struct BracedCall {
    delimiter: &'static str,
    head: String,
    literal: Option<ValueConverter>,
}

impl BracedCall {
    /// A parser placed after the delimiter that opens the call.
    pub(super) fn new(delimiter: &'static str) -> Self {
        Self {
            delimiter,
            head: String::new(),
            literal: None,
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        if let Some(literal) = &mut self.literal {
            let flow = literal.step(c, out.arguments());
            if flow == StepResult::Done {
                out.end_call();
            }
            return flow;
        }
        if c != '{' {
            if self.head.len() + c.len_utf8() > NAME_BYTES_MAX {
                return StepResult::Fail;
            }
            self.head.push(c);
            return StepResult::More;
        }
        out.count_examined(self.head.len());
        let name = self.head.trim_start().strip_prefix("call:");
        let Some(name) = name.and_then(trimmed_name) else {
            return StepResult::Fail;
        };
        out.start_call(name, "");
        let style = ValueStyle::Delimited(self.delimiter);
        let literal = self.literal.insert(ValueConverter::new(style));
        literal.step(c, out.arguments())
    }
}
