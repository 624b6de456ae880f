//! Calls written as Python: `[name(key=value, ..), ..]`, or one call without brackets.

use super::escape::{is_blank, push_escaped};
use super::flow::Flow;
use super::literal::{Literal, Style};
use super::named::{NAME_BYTES_MAX, is_name};
use super::part_writer::PartWriter;
use super::schemas::ToolSchemas;
use std::sync::Arc;

/// Parser of one call or one list of calls.
#[derive(Debug)]
pub(super) struct PythonCalls {
    /// Set for undelimited text, which is a call only if the tool is known.
    strict: Option<Arc<ToolSchemas>>,
    at: At,
    list: bool,
    /// A name or a key while being read.
    read: String,
    /// Number of parameters of the current call.
    count: usize,
    literal: Literal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Begin,
    Name,
    KeyOrEnd,
    Key,
    Value,
    InValue,
    After,
    Between,
}

impl PythonCalls {
    /// A parser before the first character. `strict`: the text is undelimited.
    pub(super) fn new(strict: Option<Arc<ToolSchemas>>) -> Self {
        Self {
            strict,
            at: At::Begin,
            list: false,
            read: String::new(),
            count: 0,
            literal: Literal::new(Style::Json),
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        if self.at == At::InValue {
            return self.in_value(c, out);
        }
        let in_word = !self.read.is_empty() && matches!(self.at, At::Name | At::Key);
        if is_blank(c) && !in_word {
            return Flow::More;
        }
        match (self.at, c) {
            (At::Begin, '[') => {
                self.list = true;
                self.at = At::Name;
            }
            (At::Begin, c) if is_word(c) => {
                self.at = At::Name;
                self.read.push(c);
            }
            (At::Name, '(') => return self.start(out),
            (At::KeyOrEnd | At::After, ')') => return self.end(out),
            (At::KeyOrEnd | At::Key, '=') => return self.keyed(out),
            (At::Name | At::KeyOrEnd | At::Key, c)
                if is_word(c) && self.read.len() < NAME_BYTES_MAX =>
            {
                self.read.push(c);
                if self.at == At::KeyOrEnd {
                    self.at = At::Key;
                }
            }
            // White space before the equals sign.
            (At::Key, ' ') => {}
            (At::Value, c) => {
                self.literal = Literal::new(Style::Json);
                self.at = At::InValue;
                return self.in_value(c, out);
            }
            (At::After, ',') => self.at = At::KeyOrEnd,
            (At::Between, ',') => self.at = At::Name,
            (At::Between, ']') => return Flow::Done,
            _ => return Flow::Fail,
        }
        Flow::More
    }

    fn start(&mut self, out: &mut PartWriter<'_>) -> Flow {
        out.count_examined(self.read.len());
        let name = self.read.trim_end_matches(".call");
        let known = |tools: &Arc<ToolSchemas>| tools.is_empty() || tools.has(name);
        if !is_name(name) || !self.strict.as_ref().is_none_or(known) {
            return Flow::Fail;
        }
        out.start_call(name, "");
        out.arguments().push('{');
        self.read.clear();
        self.count = 0;
        self.at = At::KeyOrEnd;
        Flow::More
    }

    fn keyed(&mut self, out: &mut PartWriter<'_>) -> Flow {
        if self.read.is_empty() {
            return Flow::Fail;
        }
        out.count_examined(self.read.len());
        let args = out.arguments();
        args.push_str(if self.count == 0 { "\"" } else { ", \"" });
        self.read.chars().for_each(|c| push_escaped(c, args));
        args.push_str("\": ");
        self.read.clear();
        self.count += 1;
        self.at = At::Value;
        Flow::More
    }

    fn in_value(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        match self.literal.step(c, out.arguments()) {
            Flow::Done => {
                self.at = At::After;
                Flow::More
            }
            Flow::DoneBefore => {
                self.at = At::After;
                self.step(c, out)
            }
            flow => flow,
        }
    }

    fn end(&mut self, out: &mut PartWriter<'_>) -> Flow {
        out.arguments().push('}');
        out.end_call();
        self.at = At::Between;
        if self.list { Flow::More } else { Flow::Done }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-')
}
