//! JSON as Python's `json.dumps` writes JSON (spaces after separators, floats as by `repr`, minimal escaping), and as
//! minijinja's values.

use super::bounded_filters;
use super::message::Message;
use crate::tokenizer::is_mark;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;
use std::fmt::Write;

/// Arguments of `json.dumps`.
pub(super) struct DumpsStyle {
    pub(super) ensure_ascii: bool,
    pub(super) indent: Option<usize>,
    /// Separators between items, and between key and value.
    pub(super) separators: Option<(String, String)>,
    pub(super) sort_keys: bool,
}

/// Writes a value as JSON.
pub(super) fn dumps(value: &Value, style: &DumpsStyle) -> Result<String, Error> {
    let between = if style.indent.is_some() { "," } else { ", " };
    let (between, colon) = match &style.separators {
        Some((between, colon)) => (between.as_str(), colon.as_str()),
        None => (between, ": "),
    };
    let mut writer = Writer {
        style,
        between,
        colon,
        depth: 0,
        out: String::new(),
    };
    writer.value(value)?;
    bounded_filters::bytes(writer.out.len())?;
    Ok(writer.out)
}

/// Deepest nesting of a value; deeper values are rejected, which bounds recursion.
const DEPTH_MAX: usize = 200;

struct Writer<'a> {
    style: &'a DumpsStyle,
    between: &'a str,
    colon: &'a str,
    depth: usize, // 0 ..= DEPTH_MAX
    out: String,
}

impl Writer<'_> {
    /// Checks the size before the next value, so that the output exceeds the bound by at most one string.
    fn within_bounds(&self) -> Result<(), Error> {
        bounded_filters::at_most(self.out.len(), bounded_filters::VALUE_BYTES_MAX)
    }

    fn value(&mut self, value: &Value) -> Result<(), Error> {
        self.within_bounds()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => self.object(value)?,
            ValueKind::Seq | ValueKind::Iterable => self.array(value)?,
            kind => return Err(not_json(kind)),
        }
        Ok(())
    }

    fn array(&mut self, value: &Value) -> Result<(), Error> {
        let items = value.try_iter()?;
        self.nested('[', ']', items, |writer, item| writer.value(&item))
    }

    fn object(&mut self, value: &Value) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        self.nested('{', '}', keys.into_iter(), |writer, key| {
            match key.kind() {
                ValueKind::String => writer.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    writer.out.push('"');
                    writer.value(&key)?;
                    writer.out.push('"');
                }
                kind => return Err(not_json(kind)),
            }
            writer.out.push_str(writer.colon);
            writer.value(&value.get_item(&key)?)
        })
    }

    fn nested(
        &mut self,
        open: char,
        close: char,
        items: impl Iterator<Item = Value>,
        mut write: impl FnMut(&mut Self, Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.depth == DEPTH_MAX {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "nested too deeply for JSON",
            ));
        }
        self.out.push(open);
        self.depth += 1;
        let mut empty = true;
        for item in items {
            if !std::mem::take(&mut empty) {
                self.out.push_str(self.between);
            }
            self.new_line();
            write(self, item)?;
        }
        self.depth -= 1;
        if !empty {
            self.new_line();
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(
                ' ',
                indent.min(INDENT_MAX) * self.depth,
            ));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\0'..' ' => self.escape(c),
                '\u{7f}'.. if self.style.ensure_ascii && !is_mark(c) => self.escape(c),
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// `\uXXXX`, twice for a surrogate pair.
    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(self.out, "\\u{unit:04x}"); // writing to a string cannot fail
        }
    }
}

/// Largest `indent` per level.
const INDENT_MAX: usize = 64;

fn not_json(kind: ValueKind) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("{kind} is not JSON serializable"),
    )
}

/// A number as by Python's `repr`.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) => float_repr(float),
        Err(_) => value.to_string(),
    }
}

/// The shortest digits that round-trip, with an exponent where Python writes one.
fn float_repr(float: f64) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if float == 0.0 || (1e-4..1e16).contains(&float.abs()) {
        return format!("{float:?}");
    }
    let digits = format!("{float:e}");
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Converts a JSON value. Keys keep their order; the JSON parser bounds the depth.
pub(super) fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => from_number(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => from_list(items),
        Json::Object(fields) => Value::from_pairs(
            fields
                .iter()
                .map(|(name, value)| (name.as_str(), from_json(value))),
        ),
    }
}

pub(super) fn from_list(items: &[Json]) -> Value {
    Value::from(items.iter().map(from_json).collect::<Vec<_>>())
}

/// Converts messages, with `role` and `content` as the first keys.
pub(super) fn from_messages(messages: &[Message]) -> Value {
    Value::from(messages.iter().map(from_message).collect::<Vec<_>>())
}

fn from_message(message: &Message) -> Value {
    let first = [
        ("role", Value::from(message.role.as_str())),
        ("content", from_json(&message.content)),
    ];
    let rest = message
        .rest
        .iter()
        .map(|(name, value)| (name.as_str(), from_json(value)));
    Value::from_pairs(first.into_iter().chain(rest))
}

fn from_number(number: &serde_json::Number) -> Value {
    if let Some(whole) = number.as_i64() {
        return Value::from(whole);
    }
    match number.as_u64() {
        Some(whole) => Value::from(whole),
        None => Value::from(number.as_f64().unwrap_or(f64::NAN)),
    }
}
