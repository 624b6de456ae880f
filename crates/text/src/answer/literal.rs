//! A value as it is generated, character by character, to JSON text.
//!
//! JSON comes out as it went in, blank for blank. What models also write is put right on the way:
//! Python's `True`, `False`, `None` and single quotes, line ends in strings, escapes that JSON has not.
//! Nothing is held back but a word, an escape or a delimiter that is not whole yet, so a string
//! of any length streams.

use super::digits::Digits;
use super::escape::{is_blank, push_escaped};
use super::flow::Flow;

/// How deep values may nest; what is deeper is no arguments anybody meant.
pub const NESTING_MAX: usize = 128;

/// How a family writes values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// JSON, and Python's spelling of the same.
    Json,
    /// Bare keys; strings, taken as they stand, between these delimiters.
    Delimited(&'static str),
}

/// Reads one value.
#[derive(Debug)]
pub(super) struct Literal {
    style: Style,
    stack: Vec<Nest>,
    at: At,
    /// What cannot be given yet: part of a word, an escape or a delimiter.
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
    /// After a value: a comma or a closing bracket.
    After,
    /// In a string that this quote ends.
    Quoted {
        quote: char,
        key: bool,
    },
    /// After its backslash.
    Escape {
        quote: char,
        key: bool,
    },
    /// In `\uXXXX`; or in `\xXX`.
    Hex {
        quote: char,
        key: bool,
    },
    /// In the delimiter that opens a string.
    Opening,
    /// In a delimited string.
    Delimited,
    Number(Digits),
    Word,
}

impl Literal {
    /// At the beginning of a value, which begins with its first character: blanks before it are the
    /// caller's.
    pub(super) fn new(style: Style) -> Self {
        Self {
            style,
            stack: Vec::new(),
            at: At::Value,
            held: String::new(),
        }
    }

    /// Takes the next character, and gives what became certain.
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

    /// Whether what was read is a number, which only its end tells to be whole.
    pub(super) fn ends_whole(&self) -> bool {
        self.stack.is_empty() && matches!(self.at, At::Number(digits) if digits.may_end())
    }

    /// What was read and is not given, as it stood: that of a value which ends before its end.
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

    /// A value is whole.
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
            // A backslash that was meant as one.
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
        // A delimiter's first character stands in it once, so a broken one holds no other's beginning.
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
