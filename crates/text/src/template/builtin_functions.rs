//! Functions, filters and tests of chat templates that minijinja lacks or defines differently, and Python's methods of
//! strings, mappings and lists: minijinja's set with additions.

use super::{bounded_filters, python_json};
use jiff::Timestamp;
use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Variable that holds the rendering's time, in seconds since the Unix epoch.
pub(super) const NOW: &str = "__now_unix_s";

/// Message of `raise_exception`. Source of a minijinja error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RaisedException(pub(super) String);

pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", tojson);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("int", int);
    environment.add_filter("items", items);
    environment.add_filter("float", float);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let refusal = RaisedException(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "refused").with_source(refusal))
}

fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let invalid = |why: String| Error::new(ErrorKind::InvalidOperation, why);
    let now = state.lookup(NOW).and_then(|now| i64::try_from(now).ok());
    let now = now.ok_or_else(|| invalid("the time is not known here".to_owned()))?;
    let now = Timestamp::from_second(now).map_err(|error| invalid(error.to_string()))?;
    let now = now.to_zoned(jiff::tz::TimeZone::UTC);
    jiff::fmt::strtime::format(format, &now).map_err(|error| invalid(error.to_string()))
}

/// Python's `json.dumps` with the defaults of `transformers`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands arguments over"
)]
fn tojson(value: &Value, ascii: Option<bool>, args: Kwargs) -> Result<Value, Error> {
    let style = python_json::DumpsStyle {
        ensure_ascii: args
            .get::<Option<bool>>("ensure_ascii")?
            .or(ascii)
            .unwrap_or(false),
        indent: args.get::<Option<usize>>("indent")?,
        separators: args
            .get::<Option<Vec<String>>>("separators")?
            .map(pair)
            .transpose()?,
        sort_keys: args.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    args.assert_all_used()?;
    python_json::dumps(value, &style).map(Value::from)
}

fn pair(separators: Vec<String>) -> Result<(String, String), Error> {
    let two: Result<[String; 2], _> = separators.try_into();
    let invalid = |_| Error::new(ErrorKind::InvalidOperation, "separators are two strings");
    two.map(|[between, colon]| (between, colon))
        .map_err(invalid)
}

/// As in jinja2, where undefined has length 0.
fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    if let Some(text) = value.as_str() {
        bounded_filters::spend_bytes(text.len())?;
    }
    let why = || format!("{} has no length", value.kind());
    value
        .len()
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, why()))
}

/// As in jinja2, where undefined has no items.
fn items(value: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    minijinja::filters::items(value)
}

/// As in jinja2: a value that is not a number gives the default, undefined fails.
fn int(value: &Value, default: Option<i64>) -> Result<i64, Error> {
    defined(value)?;
    let whole = match (value.kind(), value.as_str()) {
        (ValueKind::Bool, _) => Some(i64::from(value.is_true())),
        (ValueKind::String, Some(text)) => text.trim().parse().ok(),
        _ => value.as_i64(),
    };
    let whole = whole.or_else(|| as_float(value).map(|float| float as i64));
    Ok(whole.or(default).unwrap_or(0))
}

/// As in jinja2: a value that is not a number gives the default, undefined fails.
fn float(value: &Value, default: Option<f64>) -> Result<f64, Error> {
    defined(value)?;
    Ok(as_float(value).or(default).unwrap_or(0.0))
}

fn defined(value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        Err(Error::from(ErrorKind::UndefinedError))
    } else {
        Ok(())
    }
}

fn as_float(value: &Value) -> Option<f64> {
    match (value.kind(), value.as_str()) {
        (ValueKind::String, Some(text)) => text.trim().parse().ok(),
        (ValueKind::Number, _) => f64::try_from(value.clone()).ok(),
        (ValueKind::Bool, _) => Some(f64::from(u8::from(value.is_true()))),
        _ => None,
    }
}

/// As in jinja2, where undefined is iterable (and empty) and none is not.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// As in jinja2: any value with a length and items, including strings and mappings. (Values that minijinja
/// calls iterable but not sequences are mostly slices of lists.)
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), Seq | Iterable | Map | String | Undefined)
}

/// Calls a method with Python's semantics.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    bounded_filters::method(value, method, args)?;
    match (value.kind(), value.as_str()) {
        (ValueKind::String, Some(text)) => match string_method(text, method, args) {
            Err(error) if error.kind() == ErrorKind::UnknownMethod => {}
            done => return done,
        },
        (ValueKind::Map, _) if method == "copy" => {
            let () = from_args(args)?;
            return Ok(value.clone()); // values are immutable
        }
        (ValueKind::Seq, _) if method == "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *wanted);
            return at.map(Value::from).ok_or_else(not_found);
        }
        _ => {}
    }
    unknown_method_callback(state, value, method, args)
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, tail) = text
                .split_once(separator)
                .map_or((text, None), |(h, t)| (h, Some(t)));
            Ok(parts([
                head,
                tail.map_or("", |_| separator),
                tail.unwrap_or(""),
            ]))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, tail) = text
                .rsplit_once(separator)
                .map_or((None, text), |(h, t)| (Some(h), t));
            Ok(parts([
                head.unwrap_or(""),
                head.map_or("", |_| separator),
                tail,
            ]))
        }
        "rsplit" => {
            let (separator, times): (&str, Option<usize>) = from_args(args)?;
            let times = times.unwrap_or(usize::MAX);
            let pieces = text.rsplitn(times.saturating_add(1), separator);
            let mut pieces: Vec<Value> = pieces.map(Value::from).collect();
            pieces.reverse();
            Ok(Value::from(pieces))
        }
        "index" => {
            let (wanted,): (&str,) = from_args(args)?;
            let before = text
                .split_once(wanted)
                .map(|(before, _)| before.chars().count());
            before.map(Value::from).ok_or_else(not_found)
        }
        "casefold" => {
            let () = from_args(args)?;
            Ok(Value::from(text.to_lowercase()))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn not_found() -> Error {
    Error::new(ErrorKind::InvalidOperation, "not found")
}

fn parts(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from)))
}
