//! A parameter's value as plain text up to a tag, to JSON.
//!
//! What a value is only its tool's schema says. A string streams as it comes, escaped; an object or
//! a list streams as the JSON that it is; a number or a word, and what nothing is known of, waits for
//! its end and then is what it looks like.

use super::escape::{is_blank, push_escaped};
use super::flow::Flow;
use super::literal::{Literal, Style};
use super::schemas::ParameterKind;

/// Bytes of a value that waits for its end; a longer one is a string.
pub const VALUE_HELD_BYTES_MAX: usize = 32 << 10;

/// Reads one value after another.
#[derive(Debug)]
pub(super) struct ParameterValue {
    /// The tag that ends a value. Its first character stands in it once.
    close: &'static str,
    /// The value's first and last line end belong to the tags.
    lines: bool,
    at: At,
    /// A line end and the beginning of the tag, which may yet be part of the value.
    held: String,
    /// Bytes of the tag in `held`.
    matched: usize,
    /// The value, while it waits.
    waiting: String,
    /// Bytes looked at again that nobody was told of yet.
    looked: usize,
    literal: Literal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the line end that belongs to the tag.
    Line(ParameterKind),
    /// Before anything.
    First(ParameterKind),
    String,
    Waiting(ParameterKind),
    Nested,
    /// After a nested value.
    NestedEnd,
}

impl ParameterValue {
    /// Values that end with this tag.
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

    /// Bytes that were looked at again since the last time.
    pub(super) fn take_looked(&mut self) -> usize {
        std::mem::take(&mut self.looked)
    }

    /// The next value.
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

    /// Takes the next character; `Done` with the tag's last.
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

    /// What was held is part of the value.
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
                // Once as a value, and if it is none once as a string.
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

/// Writes what the text is as a value, if it is one.
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
