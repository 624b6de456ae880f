//! Incremental conversion of a generated value to JSON text, one character at a time.
//!
//! Valid JSON is copied unchanged, including white space. Common deviations are corrected: Python's `True`,
//! `False`, `None` and single quotes, raw line breaks in strings, escapes that JSON does not define, a comma before a closing
//! bracket. Only an incomplete word, escape or delimiter, or a comma with the white space that follows, is held back, so strings
//! of any length are streamed.

use super::answer_parts::PartWriter;

/// Deepest nesting of values that is accepted as arguments.
pub const NESTING_MAX: usize = 128;
/// White space kept after a comma, in bytes; more is dropped, since the comma waits for what follows.
const COMMA_BLANKS_MAX: usize = 256;

/// Syntax of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueStyle {
    /// JSON, or the equivalent Python literals.
    Json,
    /// Unquoted keys; strings stand unescaped between these delimiters.
    Delimited(&'static str),
}

/// Converter of one value.
#[derive(Debug)]
pub(super) struct ValueConverter {
    style: ValueStyle,
    stack: Vec<NestKind>,
    state: ConverterState,
    /// Held-back input: part of a word, an escape or a delimiter.
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NestKind {
    List,
    Object,
}

impl NestKind {
    /// The closing bracket.
    fn end(self) -> char {
        match self {
            Self::List => ']',
            Self::Object => '}',
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConverterState {
    Value,
    ValueOrEnd,
    KeyOrEnd,
    /// After a comma, which is held back with the white space that follows.
    Comma(NestKind),
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
    Number(NumberState),
    Word,
}

impl ValueConverter {
    /// A converter before the first character of a value; the caller skips preceding white space.
    pub(super) fn new(style: ValueStyle) -> Self {
        Self {
            style,
            stack: Vec::new(),
            state: ConverterState::Value,
            held: String::new(),
        }
    }

    /// Consumes a character of a call's arguments, with which the call ends.
    pub(super) fn step_arguments(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        let flow = self.step(c, out.arguments());
        if flow == StepResult::Done {
            out.end_call();
        }
        flow
    }

    /// Consumes a character and appends final output.
    pub(super) fn step(&mut self, c: char, out: &mut String) -> StepResult {
        match self.state {
            ConverterState::Value => self.value(c, out),
            ConverterState::ValueOrEnd if c == ']' => self.close(NestKind::List, c, out),
            ConverterState::ValueOrEnd => self.value(c, out),
            ConverterState::KeyOrEnd if c == '}' => self.close(NestKind::Object, c, out),
            ConverterState::KeyOrEnd => self.key(c, out),
            ConverterState::Comma(nest) => self.comma(nest, c, out),
            ConverterState::BareKey => self.bare_key(c, out),
            ConverterState::Colon => self.colon(c, out),
            ConverterState::After => self.after(c, out),
            ConverterState::Quoted { quote, key } => self.quoted(c, quote, key, out),
            ConverterState::Escape { quote, key } => self.escape(c, quote, key, out),
            ConverterState::Hex { quote, key } => self.hex(c, quote, key, out),
            ConverterState::Opening => self.opening(c, out),
            ConverterState::Delimited => self.delimited(c, out),
            ConverterState::Number(digits) => self.number(digits, c, out),
            ConverterState::Word => self.word(c, out),
        }
    }

    /// Whether the value is a complete number. Only the end of the input completes a number.
    pub(super) fn ends_whole(&self) -> bool {
        self.stack.is_empty()
            && matches!(self.state, ConverterState::Number(digits) if digits.may_end())
    }

    /// Appends held-back input unchanged, for a value that the end of the input truncates.
    pub(super) fn unsaid(&self, out: &mut String) {
        if matches!(
            self.state,
            ConverterState::Escape { .. } | ConverterState::Hex { .. }
        ) {
            out.push('\\');
        }
        out.push_str(&self.held);
    }

    fn value(&mut self, c: char, out: &mut String) -> StepResult {
        match (c, self.style) {
            ('{', _) => return self.open(NestKind::Object, ConverterState::KeyOrEnd, c, out),
            ('[', _) => return self.open(NestKind::List, ConverterState::ValueOrEnd, c, out),
            ('"' | '\'', ValueStyle::Json) => {
                out.push('"');
                self.state = ConverterState::Quoted {
                    quote: c,
                    key: false,
                };
            }
            (c, ValueStyle::Delimited(delimiter)) if delimiter.starts_with(c) => {
                self.held.push(c);
                self.state = ConverterState::Opening;
            }
            ('-', _) => self.digit(NumberState::Minus, c, out),
            ('0', _) => self.digit(NumberState::Zero, c, out),
            ('1'..='9', _) => self.digit(NumberState::Whole, c, out),
            ('a'..='z' | 'A'..='Z', _) => {
                self.held.push(c);
                self.state = ConverterState::Word;
            }
            (c, _) if is_blank(c) && !self.stack.is_empty() => out.push(c),
            _ => return StepResult::Fail,
        }
        StepResult::More
    }

    fn open(
        &mut self,
        nest: NestKind,
        at: ConverterState,
        c: char,
        out: &mut String,
    ) -> StepResult {
        if self.stack.len() == NESTING_MAX {
            return StepResult::Fail;
        }
        self.stack.push(nest);
        self.state = at;
        out.push(c);
        StepResult::More
    }

    fn close(&mut self, nest: NestKind, c: char, out: &mut String) -> StepResult {
        if self.stack.last() != Some(&nest) {
            return StepResult::Fail;
        }
        self.stack.pop();
        out.push(c);
        self.ended()
    }

    /// Ends a value.
    fn ended(&mut self) -> StepResult {
        self.state = ConverterState::After;
        if self.stack.is_empty() {
            StepResult::Done
        } else {
            StepResult::More
        }
    }

    fn key(&mut self, c: char, out: &mut String) -> StepResult {
        match (c, self.style) {
            (c, _) if is_blank(c) => out.push(c),
            ('"' | '\'', ValueStyle::Json) => {
                out.push('"');
                self.state = ConverterState::Quoted {
                    quote: c,
                    key: true,
                };
            }
            (c, ValueStyle::Delimited(_)) if is_bare(c) => {
                out.push('"');
                out.push(c);
                self.state = ConverterState::BareKey;
            }
            _ => return StepResult::Fail,
        }
        StepResult::More
    }

    fn bare_key(&mut self, c: char, out: &mut String) -> StepResult {
        if is_bare(c) {
            out.push(c);
            return StepResult::More;
        }
        if c != ':' {
            return StepResult::Fail;
        }
        out.push_str("\":");
        self.state = ConverterState::Value;
        StepResult::More
    }

    fn colon(&mut self, c: char, out: &mut String) -> StepResult {
        if c == ':' {
            self.state = ConverterState::Value;
        } else if !is_blank(c) {
            return StepResult::Fail;
        }
        out.push(c);
        StepResult::More
    }

    fn after(&mut self, c: char, out: &mut String) -> StepResult {
        match (c, self.stack.last()) {
            (']', Some(NestKind::List)) => return self.close(NestKind::List, c, out),
            ('}', Some(NestKind::Object)) => return self.close(NestKind::Object, c, out),
            (',', Some(&nest)) => {
                self.held.push(c);
                self.state = ConverterState::Comma(nest);
                return StepResult::More;
            }
            (c, Some(_)) if is_blank(c) => {}
            (_, None) => return StepResult::DoneBefore,
            _ => return StepResult::Fail,
        }
        out.push(c);
        StepResult::More
    }

    /// A comma before a closing bracket is dropped.
    fn comma(&mut self, nest: NestKind, c: char, out: &mut String) -> StepResult {
        if is_blank(c) {
            if self.held.len() <= COMMA_BLANKS_MAX {
                self.held.push(c);
            }
            return StepResult::More;
        }
        let is_end = c == nest.end();
        out.push_str(&self.held[usize::from(is_end)..]);
        self.held.clear();
        self.state = match nest {
            NestKind::List => ConverterState::ValueOrEnd,
            NestKind::Object => ConverterState::KeyOrEnd,
        };
        self.step(c, out)
    }

    fn quoted(&mut self, c: char, quote: char, key: bool, out: &mut String) -> StepResult {
        if c == quote {
            out.push('"');
            return self.string_ended(key);
        }
        if c == '\\' {
            self.state = ConverterState::Escape { quote, key };
        } else {
            push_escaped(c, out);
        }
        StepResult::More
    }

    fn string_ended(&mut self, key: bool) -> StepResult {
        if key {
            self.state = ConverterState::Colon;
            return StepResult::More;
        }
        self.ended()
    }

    fn escape(&mut self, c: char, quote: char, key: bool, out: &mut String) -> StepResult {
        self.state = ConverterState::Quoted { quote, key };
        match c {
            '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => {
                out.push('\\');
                out.push(c);
            }
            '\'' => out.push('\''),
            'u' | 'x' => {
                self.held.push(c);
                self.state = ConverterState::Hex { quote, key };
            }
            // A backslash that was meant literally.
            _ => {
                out.push_str("\\\\");
                push_escaped(c, out);
            }
        }
        StepResult::More
    }

    fn hex(&mut self, c: char, quote: char, key: bool, out: &mut String) -> StepResult {
        let digits = if self.held.starts_with('u') { 4 } else { 2 };
        if c.is_ascii_hexdigit() {
            self.held.push(c);
            if self.held.len() > digits {
                out.push_str(if digits == 4 { "\\u" } else { "\\u00" });
                out.push_str(&self.held[1..]);
                self.held.clear();
                self.state = ConverterState::Quoted { quote, key };
            }
            return StepResult::More;
        }
        out.push_str("\\\\");
        out.push_str(&self.held);
        self.held.clear();
        self.state = ConverterState::Quoted { quote, key };
        self.quoted(c, quote, key, out)
    }

    fn delimiter(&self) -> &'static str {
        match self.style {
            ValueStyle::Delimited(delimiter) => delimiter,
            ValueStyle::Json => "\"",
        }
    }

    fn opening(&mut self, c: char, out: &mut String) -> StepResult {
        let delimiter = self.delimiter();
        if !delimiter[self.held.len()..].starts_with(c) {
            return StepResult::Fail;
        }
        self.held.push(c);
        if self.held.len() == delimiter.len() {
            self.held.clear();
            out.push('"');
            self.state = ConverterState::Delimited;
        }
        StepResult::More
    }

    fn delimited(&mut self, c: char, out: &mut String) -> StepResult {
        let delimiter = self.delimiter();
        if delimiter[self.held.len()..].starts_with(c) {
            self.held.push(c);
            if self.held.len() < delimiter.len() {
                return StepResult::More;
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
        StepResult::More
    }

    fn digit(&mut self, digits: NumberState, c: char, out: &mut String) {
        out.push(c);
        self.state = ConverterState::Number(digits);
    }

    fn number(&mut self, digits: NumberState, c: char, out: &mut String) -> StepResult {
        if let Some(next) = digits.next(c) {
            self.digit(next, c, out);
            return StepResult::More;
        }
        if !digits.may_end() {
            return StepResult::Fail;
        }
        self.state = ConverterState::After;
        self.after(c, out)
    }

    fn word(&mut self, c: char, out: &mut String) -> StepResult {
        self.held.push(c);
        let Some((word, json)) = WORDS.iter().find(|(word, _)| word.starts_with(&self.held)) else {
            self.held.pop();
            return StepResult::Fail;
        };
        if word.len() == self.held.len() {
            out.push_str(json);
            self.held.clear();
            return self.ended();
        }
        StepResult::More
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

/// State within a number, after JSON's grammar, one character at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberState {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl NumberState {
    /// The state after one more character; `None` where the number cannot continue with the character.
    fn next(self, c: char) -> Option<Self> {
        match (self, c) {
            (Self::Minus, '0') => Some(Self::Zero),
            (Self::Minus, '1'..='9') | (Self::Whole, '0'..='9') => Some(Self::Whole),
            (Self::Zero | Self::Whole, '.') => Some(Self::Point),
            (Self::Point | Self::Fraction, '0'..='9') => Some(Self::Fraction),
            (Self::Zero | Self::Whole | Self::Fraction, 'e' | 'E') => Some(Self::Exponent),
            (Self::Exponent, '+' | '-') => Some(Self::Sign),
            (Self::Exponent | Self::Sign | Self::Power, '0'..='9') => Some(Self::Power),
            _ => None,
        }
    }

    /// Whether the number may end in this state.
    fn may_end(self) -> bool {
        matches!(
            self,
            Self::Zero | Self::Whole | Self::Fraction | Self::Power
        )
    }
}

/// Whether a parser accepts further characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    /// The parser consumed the character and expects more.
    More,
    /// The parser consumed the character and is finished.
    Done,
    /// The parser was finished before the character, which is left for the caller.
    DoneBefore,
    /// The character is invalid here and was not consumed.
    Fail,
}

/// Appends a character as the content of a JSON string.
pub(super) fn push_escaped(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c < ' ' => {
            out.push_str("\\u00");
            for nibble in [u32::from(c) >> 4, u32::from(c) & 15] {
                out.extend(char::from_digit(nibble, 16));
            }
        }
        c => out.push(c),
    }
}

/// Whether the character is JSON white space.
pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t')
}
