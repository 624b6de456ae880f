//! Conversion of a parameter written as plain text up to a closing tag.
//!
//! The tool's schema gives the type. A string is streamed and escaped; an object or a list is streamed as
//! JSON; a number, a word or a value of unknown type is buffered up to the closing tag and then classified.

use super::tool_schemas::ParameterKind;
use super::value_converter::{StepResult, ValueConverter, ValueStyle, is_blank, push_escaped};

/// Largest buffered value, in bytes; a longer value becomes a string.
pub const VALUE_HELD_BYTES_MAX: usize = 32 << 10;

/// Converter of the values of one call.
#[derive(Debug)]
pub(super) struct ParameterValue {
    /// The tag that closes a value. The tag's first character occurs in the tag only once.
    close: &'static str,
    /// Whether a value's leading and trailing line breaks belong to the tags.
    lines: bool,
    state: ValueState,
    /// A line break and a prefix of the tag, which may still be part of the value.
    held: String,
    /// Bytes of the tag in `held`.
    matched: usize,
    /// The value while being buffered.
    waiting: String,
    /// Bytes examined again and not yet reported.
    looked: usize,
    literal: ValueConverter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueState {
    /// Before the line break that belongs to the tag.
    Line(ParameterKind),
    /// Before the first character.
    First(ParameterKind),
    String,
    Waiting(ParameterKind),
    Nested,
    /// After a nested value.
    NestedEnd,
}

impl ParameterValue {
    /// A converter of values that this tag closes.
    pub(super) fn new(close: &'static str, lines: bool) -> Self {
        Self {
            close,
            lines,
            state: ValueState::String,
            held: String::new(),
            matched: 0,
            waiting: String::new(),
            looked: 0,
            literal: ValueConverter::new(ValueStyle::Json),
        }
    }

    /// Bytes examined again since the last call.
    pub(super) fn take_looked(&mut self) -> usize {
        std::mem::take(&mut self.looked)
    }

    /// Begins the next value.
    pub(super) fn begin(&mut self, kind: ParameterKind) {
        self.state = if self.lines {
            ValueState::Line(kind)
        } else {
            ValueState::First(kind)
        };
        self.held.clear();
        self.waiting.clear();
        self.matched = 0;
    }

    /// Consumes a character; `Done` with the last character of the tag.
    pub(super) fn step(&mut self, c: char, out: &mut String) -> StepResult {
        match self.state {
            ValueState::Line(kind) => {
                self.state = ValueState::First(kind);
                if c == '\n' {
                    return StepResult::More;
                }
                self.step(c, out)
            }
            ValueState::First(ParameterKind::String) => {
                out.push('"');
                self.state = ValueState::String;
                self.plain(c, out)
            }
            ValueState::First(ParameterKind::Nested) if is_blank(c) => StepResult::More,
            ValueState::First(ParameterKind::Nested) if matches!(c, '{' | '[') => {
                self.literal = ValueConverter::new(ValueStyle::Json);
                self.state = ValueState::Nested;
                self.nested(c, out)
            }
            ValueState::First(kind) => {
                self.state = ValueState::Waiting(kind);
                self.plain(c, out)
            }
            ValueState::String | ValueState::Waiting(_) => self.plain(c, out),
            ValueState::Nested => self.nested(c, out),
            ValueState::NestedEnd => self.nested_end(c),
        }
    }

    fn plain(&mut self, c: char, out: &mut String) -> StepResult {
        if self.close[self.matched..].starts_with(c) {
            self.held.push(c);
            self.matched += c.len_utf8();
            if self.matched < self.close.len() {
                return StepResult::More;
            }
            self.close(out);
            return StepResult::Done;
        }
        if self.matched > 0 {
            self.release(out);
            return self.plain(c, out);
        }
        self.release(out);
        if self.lines && c == '\n' {
            self.held.push(c);
        } else {
            self.give(c, out);
        }
        StepResult::More
    }

    /// Treats the held text as part of the value.
    fn release(&mut self, out: &mut String) {
        self.looked += self.held.len();
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.give(c, out));
        self.held = held;
        self.held.clear();
        self.matched = 0;
    }

    fn give(&mut self, c: char, out: &mut String) {
        let ValueState::Waiting(kind) = self.state else {
            return push_escaped(c, out);
        };
        self.waiting.push(c);
        let null = kind != ParameterKind::NullableString || "null".starts_with(&self.waiting);
        if self.waiting.len() >= VALUE_HELD_BYTES_MAX || !null {
            out.push('"');
            self.looked += self.waiting.len();
            self.waiting.chars().for_each(|c| push_escaped(c, out));
            self.state = ValueState::String;
        }
    }

    fn close(&mut self, out: &mut String) {
        match self.state {
            ValueState::Waiting(kind) => {
                let start = out.len();
                // Examined once as a value and, if that fails, once as a string.
                self.looked += 2 * self.waiting.len();
                if !looks_like(kind, self.waiting.trim_matches(is_blank), out) {
                    out.truncate(start);
                    out.push('"');
                    self.waiting.chars().for_each(|c| push_escaped(c, out));
                    out.push('"');
                }
            }
            _ => out.push('"'),
        }
    }

    fn nested(&mut self, c: char, out: &mut String) -> StepResult {
        let flow = self.literal.step(c, out);
        if flow == StepResult::Done {
            self.state = ValueState::NestedEnd;
            return StepResult::More;
        }
        flow
    }

    fn nested_end(&mut self, c: char) -> StepResult {
        if self.matched == 0 && is_blank(c) {
            return StepResult::More;
        }
        if !self.close[self.matched..].starts_with(c) {
            return StepResult::Fail;
        }
        self.matched += c.len_utf8();
        if self.matched == self.close.len() {
            StepResult::Done
        } else {
            StepResult::More
        }
    }
}

/// Appends the text as a JSON value; false if the text is no value.
fn looks_like(kind: ParameterKind, text: &str, out: &mut String) -> bool {
    if kind == ParameterKind::NullableString && text != "null" {
        return false;
    }
    if kind == ParameterKind::Unknown && text.starts_with(['"', '\'']) {
        return false;
    }
    let mut literal = ValueConverter::new(ValueStyle::Json);
    let mut flow = StepResult::More;
    for c in text.chars() {
        if flow == StepResult::Done {
            return false;
        }
        flow = literal.step(c, out);
        if matches!(flow, StepResult::Fail | StepResult::DoneBefore) {
            return false;
        }
    }
    flow == StepResult::Done || literal.ends_whole()
}
