//! Conversion of a parameter written as plain text up to a closing tag.
//!
//! The tool's schema gives the type. A string is streamed and escaped; an object or a list is streamed as
//! JSON; a number, a word or a value of unknown type is buffered up to the closing tag and then classified.

use super::escape::{is_blank, push_escaped};
use super::flow::Flow;
use super::literal::{Literal, Style};
use super::schemas::ParameterKind;

/// Largest buffered value, in bytes; a longer value becomes a string.
pub const VALUE_HELD_BYTES_MAX: usize = 32 << 10;

/// Converter of the values of one call.
#[derive(Debug)]
pub(super) struct ParameterValue {
    /// The tag that closes a value. The tag's first character occurs in the tag only once.
    close: &'static str,
    /// Whether a value's leading and trailing line breaks belong to the tags.
    lines: bool,
    at: At,
    /// A line break and a prefix of the tag, which may still be part of the value.
    held: String,
    /// Bytes of the tag in `held`.
    matched: usize,
    /// The value while being buffered.
    waiting: String,
    /// Bytes examined again and not yet reported.
    looked: usize,
    literal: Literal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
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
            at: At::String,
            held: String::new(),
            matched: 0,
            waiting: String::new(),
            looked: 0,
            literal: Literal::new(Style::Json),
        }
    }

    /// Bytes examined again since the last call.
    pub(super) fn take_looked(&mut self) -> usize {
        std::mem::take(&mut self.looked)
    }

    /// Begins the next value.
    pub(super) fn begin(&mut self, kind: ParameterKind) {
        self.at = if self.lines {
            At::Line(kind)
        } else {
            At::First(kind)
        };
        self.held.clear();
        self.waiting.clear();
        self.matched = 0;
    }

    /// Consumes a character; `Done` with the last character of the tag.
    pub(super) fn step(&mut self, c: char, out: &mut String) -> Flow {
        match self.at {
            At::Line(kind) => {
                self.at = At::First(kind);
                if c == '\n' {
                    return Flow::More;
                }
                self.step(c, out)
            }
            At::First(ParameterKind::String) => {
                out.push('"');
                self.at = At::String;
                self.plain(c, out)
            }
            At::First(ParameterKind::Nested) if is_blank(c) => Flow::More,
            At::First(ParameterKind::Nested) if matches!(c, '{' | '[') => {
                self.literal = Literal::new(Style::Json);
                self.at = At::Nested;
                self.nested(c, out)
            }
            At::First(kind) => {
                self.at = At::Waiting(kind);
                self.plain(c, out)
            }
            At::String | At::Waiting(_) => self.plain(c, out),
            At::Nested => self.nested(c, out),
            At::NestedEnd => self.nested_end(c),
        }
    }

    fn plain(&mut self, c: char, out: &mut String) -> Flow {
        if self.close[self.matched..].starts_with(c) {
            self.held.push(c);
            self.matched += c.len_utf8();
            if self.matched < self.close.len() {
                return Flow::More;
            }
            self.close(out);
            return Flow::Done;
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
        Flow::More
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
        let At::Waiting(kind) = self.at else {
            return push_escaped(c, out);
        };
        self.waiting.push(c);
        let null = kind != ParameterKind::NullableString || "null".starts_with(&self.waiting);
        if self.waiting.len() >= VALUE_HELD_BYTES_MAX || !null {
            out.push('"');
            self.looked += self.waiting.len();
            self.waiting.chars().for_each(|c| push_escaped(c, out));
            self.at = At::String;
        }
    }

    fn close(&mut self, out: &mut String) {
        match self.at {
            At::Waiting(kind) => {
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

    fn nested(&mut self, c: char, out: &mut String) -> Flow {
        let flow = self.literal.step(c, out);
        if flow == Flow::Done {
            self.at = At::NestedEnd;
            return Flow::More;
        }
        flow
    }

    fn nested_end(&mut self, c: char) -> Flow {
        if self.matched == 0 && is_blank(c) {
            return Flow::More;
        }
        if !self.close[self.matched..].starts_with(c) {
            return Flow::Fail;
        }
        self.matched += c.len_utf8();
        if self.matched == self.close.len() {
            Flow::Done
        } else {
            Flow::More
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
    let mut literal = Literal::new(Style::Json);
    let mut flow = Flow::More;
    for c in text.chars() {
        if flow == Flow::Done {
            return false;
        }
        flow = literal.step(c, out);
        if matches!(flow, Flow::Fail | Flow::DoneBefore) {
            return false;
        }
    }
    flow == Flow::Done || literal.ends_whole()
}
