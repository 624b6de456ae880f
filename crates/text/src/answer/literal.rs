//! Incremental conversion of a generated value to JSON text, one character at a time.
//!
//! Valid JSON is copied unchanged, including white space. Common deviations are corrected: Python's `True`,
//! `False`, `None` and single quotes, raw line breaks in strings, escapes that JSON does not define. Only an
//! incomplete word, escape or delimiter is held back, so strings of any length are streamed.

use super::digits::Digits;
use super::escape::{is_blank, push_escaped};
use super::flow::Flow;

/// Deepest nesting of values that is accepted as arguments.
pub const NESTING_MAX: usize = 128;

/// Syntax of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// JSON, or the equivalent Python literals.
    Json,
    /// Unquoted keys; strings stand unescaped between these delimiters.
    Delimited(&'static str),
}

/// Converter of one value.
#[derive(Debug)]
pub(super) struct Literal {
    style: Style,
    stack: Vec<Nest>,
    at: At,
    /// Held-back input: part of a word, an escape or a delimiter.
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nest {
    List,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    BareKey,
    Colon,
    /// After a value: before a comma or a closing bracket.
    After,
    /// Inside a string that this quote ends.
    Quoted {
        quote: char,
        key: bool,
    },
    /// After a backslash.
    Escape {
        quote: char,
        key: bool,
    },
    /// Inside `\uXXXX` or `\xXX`.
    Hex {
        quote: char,
        key: bool,
    },
    /// Inside the delimiter that opens a string.
    Opening,
    /// Inside a delimited string.
    Delimited,
    Number(Digits),
    Word,
}

impl Literal {
    /// A converter before the first character of a value; the caller skips preceding white space.
    pub(super) fn new(style: Style) -> Self {
        Self {
            style,
            stack: Vec::new(),
            at: At::Value,
            held: String::new(),
        }
    }

    /// Consumes a character and appends final output.
    pub(super) fn step(&mut self, c: char, out: &mut String) -> Flow {
        match self.at {
            At::Value => self.value(c, out),
            At::ValueOrEnd if c == ']' => self.close(Nest::List, c, out),
            At::ValueOrEnd => self.value(c, out),
            At::KeyOrEnd if c == '}' => self.close(Nest::Object, c, out),
            At::Key | At::KeyOrEnd => self.key(c, out),
            At::BareKey => self.bare_key(c, out),
            At::Colon => self.colon(c, out),
            At::After => self.after(c, out),
            At::Quoted { quote, key } => self.quoted(c, quote, key, out),
            At::Escape { quote, key } => self.escape(c, quote, key, out),
            At::Hex { quote, key } => self.hex(c, quote, key, out),
            At::Opening => self.opening(c, out),
            At::Delimited => self.delimited(c, out),
            At::Number(digits) => self.number(digits, c, out),
            At::Word => self.word(c, out),
        }
    }

    /// Whether the value is a complete number. Only the end of the input completes a number.
    pub(super) fn ends_whole(&self) -> bool {
        self.stack.is_empty() && matches!(self.at, At::Number(digits) if digits.may_end())
    }

    /// Appends held-back input unchanged, for a value that the end of the input truncates.
    pub(super) fn unsaid(&self, out: &mut String) {
        if matches!(self.at, At::Escape { .. } | At::Hex { .. }) {
            out.push('\\');
        }
        out.push_str(&self.held);
    }

    fn value(&mut self, c: char, out: &mut String) -> Flow {
        match (c, self.style) {
            ('{', _) => return self.open(Nest::Object, At::KeyOrEnd, c, out),
            ('[', _) => return self.open(Nest::List, At::ValueOrEnd, c, out),
            ('"' | '\'', Style::Json) => {
                out.push('"');
                self.at = At::Quoted {
                    quote: c,
                    key: false,
                };
            }
            (c, Style::Delimited(delimiter)) if delimiter.starts_with(c) => {
                self.held.push(c);
                self.at = At::Opening;
            }
            ('-', _) => self.digit(Digits::Minus, c, out),
            ('0', _) => self.digit(Digits::Zero, c, out),
            ('1'..='9', _) => self.digit(Digits::Whole, c, out),
            ('a'..='z' | 'A'..='Z', _) => {
                self.held.push(c);
                self.at = At::Word;
            }
            (c, _) if is_blank(c) && !self.stack.is_empty() => out.push(c),
            _ => return Flow::Fail,
        }
        Flow::More
    }

    fn open(&mut self, nest: Nest, at: At, c: char, out: &mut String) -> Flow {
        if self.stack.len() == NESTING_MAX {
            return Flow::Fail;
        }
        self.stack.push(nest);
        self.at = at;
        out.push(c);
        Flow::More
    }

    fn close(&mut self, nest: Nest, c: char, out: &mut String) -> Flow {
        if self.stack.last() != Some(&nest) {
            return Flow::Fail;
        }
        self.stack.pop();
        out.push(c);
        self.ended()
    }

    /// Ends a value.
    fn ended(&mut self) -> Flow {
        self.at = At::After;
        if self.stack.is_empty() {
            Flow::Done
        } else {
            Flow::More
        }
    }

    fn key(&mut self, c: char, out: &mut String) -> Flow {
        match (c, self.style) {
            (c, _) if is_blank(c) => out.push(c),
            ('"' | '\'', Style::Json) => {
                out.push('"');
                self.at = At::Quoted {
                    quote: c,
                    key: true,
                };
            }
            (c, Style::Delimited(_)) if is_bare(c) => {
                out.push('"');
                out.push(c);
                self.at = At::BareKey;
            }
            _ => return Flow::Fail,
        }
        Flow::More
    }

    fn bare_key(&mut self, c: char, out: &mut String) -> Flow {
        if is_bare(c) {
            out.push(c);
            return Flow::More;
        }
        if c != ':' {
            return Flow::Fail;
        }
        out.push_str("\":");
        self.at = At::Value;
        Flow::More
    }

    fn colon(&mut self, c: char, out: &mut String) -> Flow {
        if c == ':' {
            self.at = At::Value;
        } else if !is_blank(c) {
            return Flow::Fail;
        }
        out.push(c);
        Flow::More
    }

    fn after(&mut self, c: char, out: &mut String) -> Flow {
        match (c, self.stack.last()) {
            (']', Some(Nest::List)) => return self.close(Nest::List, c, out),
            ('}', Some(Nest::Object)) => return self.close(Nest::Object, c, out),
            (',', Some(Nest::List)) => self.at = At::Value,
            (',', Some(Nest::Object)) => self.at = At::Key,
            (c, Some(_)) if is_blank(c) => {}
            (_, None) => return Flow::DoneBefore,
            _ => return Flow::Fail,
        }
        out.push(c);
        Flow::More
    }

    fn quoted(&mut self, c: char, quote: char, key: bool, out: &mut String) -> Flow {
        if c == quote {
            out.push('"');
            return self.string_ended(key);
        }
        if c == '\\' {
            self.at = At::Escape { quote, key };
        } else {
            push_escaped(c, out);
        }
        Flow::More
    }

    fn string_ended(&mut self, key: bool) -> Flow {
        if key {
            self.at = At::Colon;
            return Flow::More;
        }
        self.ended()
    }

    fn escape(&mut self, c: char, quote: char, key: bool, out: &mut String) -> Flow {
        self.at = At::Quoted { quote, key };
        match c {
            '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => {
                out.push('\\');
                out.push(c);
            }
            '\'' => out.push('\''),
            'u' | 'x' => {
                self.held.push(c);
                self.at = At::Hex { quote, key };
            }
            // A backslash that was meant literally.
            _ => {
                out.push_str("\\\\");
                push_escaped(c, out);
            }
        }
        Flow::More
    }

    fn hex(&mut self, c: char, quote: char, key: bool, out: &mut String) -> Flow {
        let digits = if self.held.starts_with('u') { 4 } else { 2 };
        if c.is_ascii_hexdigit() {
            self.held.push(c);
            if self.held.len() > digits {
                out.push_str(if digits == 4 { "\\u" } else { "\\u00" });
                out.push_str(&self.held[1..]);
                self.held.clear();
                self.at = At::Quoted { quote, key };
            }
            return Flow::More;
        }
        out.push_str("\\\\");
        out.push_str(&self.held);
        self.held.clear();
        self.at = At::Quoted { quote, key };
        self.quoted(c, quote, key, out)
    }

    fn delimiter(&self) -> &'static str {
        match self.style {
            Style::Delimited(delimiter) => delimiter,
            Style::Json => "\"",
        }
    }

    fn opening(&mut self, c: char, out: &mut String) -> Flow {
        let delimiter = self.delimiter();
        if !delimiter[self.held.len()..].starts_with(c) {
            return Flow::Fail;
        }
        self.held.push(c);
        if self.held.len() == delimiter.len() {
            self.held.clear();
            out.push('"');
            self.at = At::Delimited;
        }
        Flow::More
    }

    fn delimited(&mut self, c: char, out: &mut String) -> Flow {
        let delimiter = self.delimiter();
        if delimiter[self.held.len()..].starts_with(c) {
            self.held.push(c);
            if self.held.len() < delimiter.len() {
                return Flow::More;
            }
            self.held.clear();
            out.push('"');
            return self.string_ended(false);
        }
        // A delimiter's first character occurs in the delimiter only once, so a broken delimiter contains no
        // prefix of another.
        self.held.chars().for_each(|held| push_escaped(held, out));
        self.held.clear();
        if delimiter.starts_with(c) {
            self.held.push(c);
        } else {
            push_escaped(c, out);
        }
        Flow::More
    }

    fn digit(&mut self, digits: Digits, c: char, out: &mut String) {
        out.push(c);
        self.at = At::Number(digits);
    }

    fn number(&mut self, digits: Digits, c: char, out: &mut String) -> Flow {
        if let Some(next) = digits.next(c) {
            self.digit(next, c, out);
            return Flow::More;
        }
        if !digits.may_end() {
            return Flow::Fail;
        }
        self.at = At::After;
        self.after(c, out)
    }

    fn word(&mut self, c: char, out: &mut String) -> Flow {
        self.held.push(c);
        let Some((word, json)) = WORDS.iter().find(|(word, _)| word.starts_with(&self.held)) else {
            self.held.pop();
            return Flow::Fail;
        };
        if word.len() == self.held.len() {
            out.push_str(json);
            self.held.clear();
            return self.ended();
        }
        Flow::More
    }
}

const WORDS: [(&str, &str); 6] = [
    ("true", "true"),
    ("false", "false"),
    ("null", "null"),
    ("True", "true"),
    ("False", "false"),
    ("None", "null"),
];

fn is_bare(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$')
}
