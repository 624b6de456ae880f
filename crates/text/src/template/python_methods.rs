//! Python's methods of strings, mappings and lists: minijinja's set with additions.

use super::bounded_filters;
use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

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
