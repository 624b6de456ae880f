//! Limits of values and token ids in a body: parsed values take more memory than their JSON text.

use super::recorder::token_id_schema;
use super::{Fields, JsonType, RawJson, as_text, json_type, parse_value, whole_number};
use generate::error::Problem;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::json;
use std::fmt;

/// Limit of values in a body, names of fields included. A parsed value takes up to about 200 bytes, and as little as
/// three bytes of JSON.
pub const VALUES_MAX: usize = 1 << 18;
/// Limit of token ids in a list: the length of the longest context.
pub(crate) const IDS_MAX: usize = 1 << 20;
/// Request fields that may be lists of token ids: ids are parsed one by one ([`parse_ids`]) and take four bytes each.
const LISTS_OF_IDS: [&str; 4] = ["prompt", "input", "context", "tokens"];

/// The number of values that may follow the field `name`, given that `left` may follow before the field is counted.
///
/// # Errors
/// The field has more than `left` values.
pub fn count_values(name: &str, raw: RawJson<'_>, left: usize) -> Result<usize, Problem> {
    let counts_numbers = !LISTS_OF_IDS.contains(&name);
    let values = value_count(raw.get(), counts_numbers);
    left.checked_sub(values).ok_or_else(|| {
        Problem::new(
            name,
            format!("together with the fields before it holds more than {VALUES_MAX} values"),
        )
    })
}

/// Number of values in a JSON text, including names of fields. Without `numbers`, only lists and objects count as
/// items of a list.
fn value_count(text: &str, numbers: bool) -> usize {
    let (mut values, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        if in_string {
            in_string = is_escaped || byte != b'"';
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' | b':' => values += 1,
            b',' if numbers => values += 1,
            _ => {}
        }
    }
    values
}

/// Whether a value is a list that begins with a number.
pub fn begins_with_number(raw: RawJson<'_>) -> bool {
    let inside = raw.get().strip_prefix('[').map(str::trim_start);
    inside.is_some_and(|inside| inside.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
}

/// Parses token ids below `vocab` one by one. The error names the field `path`.
///
/// # Errors
/// No list, a list longer than [`IDS_MAX`], or an invalid id.
pub fn parse_ids(path: &str, raw: RawJson<'_>, vocab: usize) -> Result<Vec<u32>, Problem> {
    let no_list = || Problem::new(path, "must be a list of token ids");
    if json_type(raw) != JsonType::Array {
        return Err(no_list());
    }
    let (mut ids, mut problem) = (Vec::new(), None);
    let is_list = each_item(raw, |item| {
        match token_id(item, vocab) {
            _ if ids.len() == IDS_MAX => problem = Some(too_many_ids(path)),
            Some(id) => ids.push(id),
            None => problem = Some(invalid_id(path, ids.len(), vocab)),
        }
        problem.is_none()
    });
    match problem {
        Some(problem) => Err(problem),
        None if is_list => Ok(ids),
        None => Err(no_list()),
    }
}

/// The problem of a list of more ids than a list may have.
pub(crate) fn too_many_ids(path: &str) -> Problem {
    Problem::new(path, format!("must hold at most {IDS_MAX} token ids"))
}

/// The problem of an item that is no token id.
pub(crate) fn invalid_id(path: &str, index: usize, vocab: usize) -> Problem {
    Problem::new(format!("{path}[{index}]"), token_id_message(vocab))
}

/// Passes the items of a list to `take`, one by one, until that returns false. Whether all items of a list were taken.
pub(crate) fn each_item<'a>(raw: RawJson<'a>, take: impl FnMut(RawJson<'a>) -> bool) -> bool {
    let mut json = serde_json::Deserializer::from_str(raw.get());
    json.deserialize_seq(Items(take)).is_ok()
}

struct Items<F>(F);

impl<'a, F: FnMut(RawJson<'a>) -> bool> Visitor<'a> for Items<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'a>>(mut self, mut seq: S) -> Result<(), S::Error> {
        while let Some(item) = seq.next_element::<RawJson<'a>>()? {
            if !(self.0)(item) {
                return Err(S::Error::custom("an invalid item"));
            }
        }
        Ok(())
    }
}

/// Parses a field that is a list of at most `max` token ids of any vocabulary. An absent field is an empty list; errors
/// are recorded in `fields`.
pub(crate) fn token_id_list(fields: &mut Fields<'_>, name: &str, max: usize) -> Vec<u32> {
    fields.record(name, || json!({"items": token_id_schema()}));
    let items = fields.array(name, max).unwrap_or_default();
    let mut ids = Vec::with_capacity(items.len());
    for (i, raw) in items.into_iter().enumerate() {
        match parse_value::<u32>(raw) {
            Some(id) => ids.push(id),
            None => fields.reject(format!("{name}[{i}]"), "must be a token id"),
        }
    }
    ids
}

/// Parses strings of 1 to `bytes_max` bytes, the items of a list at `path`. Errors are recorded in `fields`.
pub(crate) fn short_strings(
    fields: &mut Fields<'_>,
    path: &str,
    items: Vec<RawJson<'_>>,
    bytes_max: usize,
) -> Vec<String> {
    let mut strings = Vec::with_capacity(items.len());
    for (i, item) in items.into_iter().enumerate() {
        match as_text(item) {
            Some(text) if (1..=bytes_max).contains(&text.len()) => strings.push(text.into_owned()),
            _ => fields.reject(
                format!("{path}[{i}]"),
                format!("must be a string of 1 to {bytes_max} bytes"),
            ),
        }
    }
    strings
}

/// Parses a token id of the vocabulary.
pub fn token_id(raw: RawJson<'_>, vocab: usize) -> Option<u32> {
    whole_number(raw)
        .filter(|id| (0..vocab as i128).contains(id))
        .and_then(|id| u32::try_from(id).ok())
}

/// Error message for an invalid token id.
pub fn token_id_message(vocab: usize) -> String {
    format!("must be a token id from 0 to {}", vocab.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawJson<'_> {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn value_count_ignores_strings() {
        for (text, all, without_numbers) in [
            ("1", 1, 1),
            ("\"a,b:[{\\\",\\\\\"", 1, 1),
            ("[1, 2, 3]", 4, 2),
            ("[[], [], {}]", 7, 5),
            ("{\"a\": 1, \"b\": [2, 3]}", 7, 5),
        ] {
            assert_eq!(
                (value_count(text, true), value_count(text, false)),
                (all, without_numbers),
                "{text}"
            );
        }
    }

    #[test]
    fn body_over_the_value_limit_is_rejected() {
        let lists = |n: usize| format!("[{}[]]", "[],".repeat(n - 1));
        let fits = VALUES_MAX / 2 - 2;
        assert!(count_values("tools", raw(&lists(fits)), VALUES_MAX).is_ok());
        let problem = count_values("tools", raw(&lists(VALUES_MAX / 2 + 1)), VALUES_MAX)
            .expect_err("too many");
        assert_eq!(problem.field, "tools");
        assert!(
            problem.constraint.contains("262144"),
            "{}",
            problem.constraint
        );
        let left = count_values("tools", raw(&lists(fits)), VALUES_MAX).expect("some are left");
        assert!(left < 8 && count_values("more", raw("[1,2,3,4,5,6,7,8]"), left).is_err());
        let numbers = format!("[{}0]", "0,".repeat(VALUES_MAX));
        let numbers = raw(&numbers);
        assert!(count_values("kwargs", numbers, VALUES_MAX).is_err());
        assert_eq!(
            count_values("prompt", numbers, VALUES_MAX).ok(),
            Some(VALUES_MAX - 2)
        );
    }

    #[test]
    fn token_ids_are_parsed_one_by_one() {
        let read = |text: &str| {
            parse_ids("context", raw(text), 300)
                .map_err(|p| (p.field.to_string(), p.constraint.to_string()))
        };
        assert_eq!(read("[1, 2.0, 299]"), Ok(vec![1, 2, 299]));
        assert_eq!(read("[]"), Ok(Vec::new()));
        assert_eq!(read("[1, 300]").expect_err("no id").0, "context[1]");
        assert_eq!(read("[1, \"a\"]").expect_err("no id").0, "context[1]");
        assert!(read("{}").is_err());
        let most = format!("[{}1]", "1,".repeat(IDS_MAX - 1));
        assert_eq!(read(&most).map(|ids| ids.len()), Ok(IDS_MAX));
        let more = format!("[{}1]", "1,".repeat(IDS_MAX));
        let (field, error_message) = read(&more).expect_err("too many");
        assert!(
            field == "context" && error_message.contains("1048576"),
            "{field}: {error_message}"
        );
    }
}
