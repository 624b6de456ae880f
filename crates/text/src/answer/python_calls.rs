//! Calls written as Python: `[name(key=value, ..), ..]`, or one call without brackets.

use super::answer_parts::PartWriter;
use super::named_call::{NAME_BYTES_MAX, is_name};
use super::tool_schemas::ToolSchemas;
use super::value_converter::{StepResult, ValueConverter, ValueStyle, is_blank, push_escaped};
use std::sync::Arc;

/// Parser of one call or one list of calls.
#[derive(Debug)]
pub(super) struct PythonCalls {
    /// Set for undelimited text, which is a call only if the tool is known.
    strict: Option<Arc<ToolSchemas>>,
    state: PythonCallState,
    list: bool,
    /// A name or a key while being read.
    read: String,
    /// Number of parameters of the current call.
    count: usize,
    literal: ValueConverter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PythonCallState {
    Begin,
    Name,
    KeyOrEnd,
    Key,
    Value,
    InValue,
    After,
    Between,
    /// After a comma between calls of a list.
    NameOrEnd,
}

impl PythonCalls {
    /// A parser before the first character. `strict`: the text is undelimited.
    pub(super) fn new(strict: Option<Arc<ToolSchemas>>) -> Self {
        Self {
            strict,
            state: PythonCallState::Begin,
            list: false,
            read: String::new(),
            count: 0,
            literal: ValueConverter::new(ValueStyle::Json),
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        if self.state == PythonCallState::InValue {
            return self.in_value(c, out);
        }
        let in_word = !self.read.is_empty()
            && matches!(self.state, PythonCallState::Name | PythonCallState::Key);
        if is_blank(c) && !in_word {
            return StepResult::More;
        }
        match (self.state, c) {
            (PythonCallState::Begin, '[') => {
                self.list = true;
                self.state = PythonCallState::Name;
            }
            (PythonCallState::Begin | PythonCallState::NameOrEnd, c) if is_word(c) => {
                self.state = PythonCallState::Name;
                self.read.push(c);
            }
            (PythonCallState::Name, '(') => return self.start(out),
            (PythonCallState::KeyOrEnd | PythonCallState::After, ')') => return self.end(out),
            (PythonCallState::KeyOrEnd | PythonCallState::Key, '=') => return self.keyed(out),
            (PythonCallState::Name | PythonCallState::KeyOrEnd | PythonCallState::Key, c)
                if is_word(c) && self.read.len() < NAME_BYTES_MAX =>
            {
                self.read.push(c);
                if self.state == PythonCallState::KeyOrEnd {
                    self.state = PythonCallState::Key;
                }
            }
            // White space before the equals sign.
            (PythonCallState::Key, ' ') => {}
            (PythonCallState::Value, c) => {
                self.literal = ValueConverter::new(ValueStyle::Json);
                self.state = PythonCallState::InValue;
                return self.in_value(c, out);
            }
            (PythonCallState::After, ',') => self.state = PythonCallState::KeyOrEnd,
            (PythonCallState::Between, ',') => self.state = PythonCallState::NameOrEnd,
            (PythonCallState::Between | PythonCallState::NameOrEnd, ']') => {
                return StepResult::Done;
            }
            _ => return StepResult::Fail,
        }
        StepResult::More
    }

    fn start(&mut self, out: &mut PartWriter<'_>) -> StepResult {
        out.count_examined(self.read.len());
        let name = self.read.trim_end_matches(".call");
        let known = |tools: &Arc<ToolSchemas>| tools.is_empty() || tools.has(name);
        if !is_name(name) || !self.strict.as_ref().is_none_or(known) {
            return StepResult::Fail;
        }
        out.start_call(name, "");
        out.arguments().push('{');
        self.read.clear();
        self.count = 0;
        self.state = PythonCallState::KeyOrEnd;
        StepResult::More
    }

    fn keyed(&mut self, out: &mut PartWriter<'_>) -> StepResult {
        if self.read.is_empty() {
            return StepResult::Fail;
        }
        out.count_examined(self.read.len());
        let args = out.arguments();
        args.push_str(if self.count == 0 { "\"" } else { ", \"" });
        self.read.chars().for_each(|c| push_escaped(c, args));
        args.push_str("\": ");
        self.read.clear();
        self.count += 1;
        self.state = PythonCallState::Value;
        StepResult::More
    }

    fn in_value(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        match self.literal.step(c, out.arguments()) {
            StepResult::Done => {
                self.state = PythonCallState::After;
                StepResult::More
            }
            StepResult::DoneBefore => {
                self.state = PythonCallState::After;
                self.step(c, out)
            }
            flow => flow,
        }
    }

    fn end(&mut self, out: &mut PartWriter<'_>) -> StepResult {
        out.arguments().push('}');
        out.end_call();
        self.state = PythonCallState::Between;
        if self.list {
            StepResult::More
        } else {
            StepResult::Done
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-')
}
