//! A parsed request body that owns its text: the ranges of the fields in the text.
//!
//! [`RequestBody::parse`] takes the bytes, so a body is parsed as JSON once: the model lookup, the wire protocol's
//! parser and other readers use [`RequestBody::fields`], which neither parses nor copies values.

use crate::fields::{Fields, JsonObject, RawJson};
use bytes::Bytes;
use generate::error::ApiError;
use std::borrow::Cow;
use std::ops::Range;

/// A body that is a JSON object.
#[derive(Debug)]
pub struct RequestBody {
    text: String,
    /// Entries in the order of the text.
    entries: Vec<Entry>,
}

/// Ranges of a field in the text.
#[derive(Debug)]
struct Entry {
    name: FieldName,
    value: Range<usize>,
}

#[derive(Debug)]
enum FieldName {
    Plain(Range<usize>),
    /// The name in the text has escapes.
    Escaped(Box<str>),
}

impl RequestBody {
    /// Parses a body.
    ///
    /// # Errors
    /// Invalid UTF-8, no JSON object, or more fields or values than an object may have.
    pub fn parse(body: Bytes) -> Result<Self, ApiError> {
        let text = String::from_utf8(body.into())
            .map_err(|error| Fields::invalid_utf8(error.utf8_error()))?;
        let entries = Fields::of_text(&text)?.into_object().into_entries();
        let entries = entries.map(|(name, raw)| Entry {
            name: match name {
                Cow::Borrowed(name) => FieldName::Plain(place(&text, name)),
                Cow::Owned(name) => FieldName::Escaped(name.into()),
            },
            value: place(&text, raw.get()),
        });
        let entries = entries.collect();
        Ok(Self { text, entries })
    }

    /// The fields, all unread.
    pub fn fields(&self) -> Fields<'_> {
        let entries = self.entries.iter().map(|entry| {
            let name = match &entry.name {
                FieldName::Plain(place) => &self.text[place.clone()],
                FieldName::Escaped(name) => name,
            };
            let value = &self.text[entry.value.clone()];
            (Cow::Borrowed(name), RawJson::of_parsed(value))
        });
        Fields::of_object(JsonObject::new(entries.collect()))
    }

    /// The JSON text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Range of a slice of `text`.
fn place(text: &str, slice: &str) -> Range<usize> {
    let start = slice.as_ptr().addr() - text.as_ptr().addr();
    start..start + slice.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RequestBody, ApiError> {
        RequestBody::parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn fields_of_a_body_are_slices_of_its_text() {
        let body = parse(" {\"model\": \"é\", \"\\u0061\": [1, {\"b\": 2}] ,\"n\":null}\n")
            .expect("a body");
        // Each call returns unread fields.
        for _ in 0..2 {
            let fields = body.fields();
            assert_eq!(fields.unread_fields().collect::<Vec<_>>(), ["model", "a"]);
            for (name, want) in [
                ("model", Some("\"é\"")),
                ("a", Some("[1, {\"b\": 2}]")),
                ("n", None),
            ] {
                let raw = fields.raw(name).map(RawJson::get);
                assert_eq!(raw, want, "{name}");
                let is_inside = raw.is_none_or(|raw| body.text[place(&body.text, raw)] == *raw);
                assert!(is_inside, "{name} is a copy");
            }
            assert_eq!(fields.unread_fields().count(), 0);
        }
    }

    #[test]
    fn body_is_rejected_like_its_fields() {
        let bodies: [&[u8]; 7] = [
            b"",
            b"{\"a\": [",
            b"[]",
            b"{} x",
            b"{\"a\":1",
            b"\xff{}",
            b"nul",
        ];
        for bytes in bodies {
            let of_body = RequestBody::parse(Bytes::copy_from_slice(bytes)).expect_err("no object");
            let of_fields = Fields::parse(bytes).err().expect("no object");
            assert_eq!(
                (of_body.code, of_body.message),
                (of_fields.code, of_fields.message)
            );
        }
        let twice = parse("{\"a\":1,\"b\":2,\"a\":3}").expect("a body");
        let error = twice.fields().finish().expect_err("a field is given twice");
        assert_eq!((error.problems.len(), &*error.problems[0].field), (1, "a"));
    }
}
