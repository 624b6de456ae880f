//! Parser of a JSON object, field by field: an invalid field is recorded and the next field is parsed, so that an
//! error response lists all invalid fields at once.

pub mod bounds;
mod image_list;
mod or_reject;
pub mod recorder;

use self::image_list::ImageList;
use self::recorder::{FieldRecorder, array_schema, integer_schema, object_schema};
use crate::field_table::{self, FieldTable};
use generate::error::{ApiError, Problem};
use generate::request::IgnoredFields;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::Utf8Error;

pub use bounds::begins_with_number;
pub use or_reject::OrReject;

/// Limit of fields per object.
const FIELDS_MAX: usize = 256;
/// Limit of errors per response.
const PROBLEMS_MAX: usize = 64;
/// Limit of an invalid value that the error response repeats, in bytes.
const SHOWN_BYTES_MAX: usize = 32;

/// The type of a JSON value, from the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kinds of JSON")]
pub enum JsonType {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// The type of a value.
pub fn json_type(raw: RawJson<'_>) -> JsonType {
    match raw.get().as_bytes().first() {
        Some(b'"') => JsonType::String,
        Some(b'[') => JsonType::Array,
        Some(b'{') => JsonType::Object,
        Some(b't' | b'f') => JsonType::Bool,
        Some(b'n') | None => JsonType::Null,
        Some(_) => JsonType::Number,
    }
}

/// What an object with a JSON Schema must be so that it can be read.
pub(crate) const SCHEMA_MESSAGE: &str =
    "must be a JSON Schema (an object), nested at most 127 deep, with numbers that an f64 holds";

/// What any other value must be so that it can be read.
pub(crate) const VALUE_MESSAGE: &str =
    "must be nested at most 127 deep, with numbers that an f64 holds";

/// Parses a value as a `T`; `None` for a value of another type.
pub fn parse_value<'a, T: Deserialize<'a>>(raw: RawJson<'a>) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// A number in a range, as the engine computes with it.
pub(crate) fn number_in(raw: RawJson<'_>, range: &RangeInclusive<f64>) -> Option<f32> {
    let number = Some(raw).filter(|raw| json_type(*raw) == JsonType::Number);
    let number = number.and_then(parse_value::<f64>);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the engine computes in f32"
    )]
    let number = number
        .filter(|number| range.contains(number))
        .map(|number| number as f32);
    number
}

/// A JSON Schema that is an object.
pub(crate) fn schema_object(raw: RawJson<'_>) -> Option<Value> {
    let object = Some(raw).filter(|raw| json_type(*raw) == JsonType::Object);
    object.and_then(parse_value)
}

/// An integer, also in a notation like `5.0`.
pub fn whole_number(raw: RawJson<'_>) -> Option<i128> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if json_type(raw) != JsonType::Number {
        return None;
    }
    if let Ok(integer) = raw.get().parse::<i128>() {
        return Some(integer);
    }
    let float: f64 = parse_value(raw)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "in the range where doubles are exact integers"
    )]
    (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i128)
}

/// The fields of an object, which of them were read, and the errors so far.
pub struct Fields<'a> {
    object: JsonObject<'a>,
    /// One bit per entry of the object: set when the value was read.
    read: Cell<[u128; FIELDS_MAX / 128]>,
    problems: Vec<Problem>,
    /// Parts of fields that were left out: where each stands, and its name for the client.
    left_out: Vec<(String, String)>,
    images: ImageList,
    /// Collects the schemas of the fields that are read.
    recorder: Option<FieldRecorder>,
}

impl<'a> Fields<'a> {
    /// Parses the text of a JSON object.
    ///
    /// # Errors
    /// Invalid UTF-8, no JSON object, or more fields or values than an object may have.
    pub fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        let text = std::str::from_utf8(body).map_err(Self::invalid_utf8)?;
        Self::of_text(text)
    }

    pub(crate) fn of_text(text: &'a str) -> Result<Self, ApiError> {
        let object: JsonObject<'a> = serde_json::from_str(text).map_err(|_| object_error(text))?;
        expect_few_values(&object, text.len())?;
        Ok(Self::of_object(object))
    }

    /// The entries of a parsed object as unread fields.
    pub(crate) fn of_object(object: JsonObject<'a>) -> Self {
        let repeated = object.repeated_names().take(PROBLEMS_MAX);
        let problems = repeated.map(|name| Problem::new(name, "is given more than once"));
        let problems = problems.collect();
        Self {
            problems,
            ..Self::unread(object)
        }
    }

    fn unread(object: JsonObject<'a>) -> Self {
        Self {
            object,
            read: Cell::default(),
            problems: Vec::new(),
            left_out: Vec::new(),
            images: ImageList::default(),
            recorder: None,
        }
    }

    pub(crate) fn into_object(self) -> JsonObject<'a> {
        self.object
    }

    pub(crate) fn invalid_utf8(error: Utf8Error) -> ApiError {
        let offset = error.valid_up_to();
        let error_message = format!("the body is not UTF-8: bad byte at offset {offset}");
        ApiError::bad_request("invalid_utf8", error_message)
    }

    /// Finishes a request, with the errors for fields that the protocol's table rejects. Returns the ignored fields.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn finish_request(mut self, table: &FieldTable) -> Result<IgnoredFields, ApiError> {
        table.reject_fields(&mut self);
        table.record(&self);
        let ignored = field_table::ignored_fields(&self, table);
        self.finish()?;
        field_table::log_ignored(&ignored);
        Ok(ignored)
    }

    /// Fields with a value that were not read.
    pub fn unread_fields(&self) -> impl Iterator<Item = &str> {
        let read = self.read.get();
        let is_unread = move |i: usize| read[i / 128] & (1 << (i % 128)) == 0;
        let entries = self.object.entries().enumerate();
        let unread =
            entries.filter(move |(i, (_, raw))| json_type(*raw) != JsonType::Null && is_unread(*i));
        unread.map(|(_, (name, _))| name)
    }

    /// Parses token ids below `vocab`; errors are recorded under `path`, which may be a part of a field.
    pub fn ids(&mut self, path: &str, raw: RawJson<'_>, vocab: usize) -> Option<Vec<u32>> {
        self.take(bounds::parse_ids(path, raw, vocab))
    }

    /// The value; or records the problem.
    pub(crate) fn take<T>(&mut self, parsed: Result<T, Problem>) -> Option<T> {
        let noted = parsed.map_err(|problem| self.reject(problem.field, problem.constraint));
        noted.ok()
    }

    /// Finishes an object.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn finish(self) -> Result<(), ApiError> {
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(ApiError::fields(self.problems))
        }
    }

    /// Records an error: `constraint` is the condition that `field` violates.
    pub fn reject(&mut self, field: impl Display, constraint: impl Display) {
        if self.problems.len() < PROBLEMS_MAX {
            let problem = Problem::new(field.to_string(), constraint.to_string());
            let value = self.find_value(&problem.field).and_then(shown_value);
            self.problems.push(Problem { value, ..problem });
        }
    }

    /// No value, for an error as of [`reject`](Self::reject).
    pub(crate) fn no_value<T>(
        &mut self,
        field: impl Display,
        constraint: impl Display,
    ) -> Option<T> {
        self.reject(field, constraint);
        None
    }

    /// Leaves out the part of a field at `path`, which this server cannot run. The response header of ignored fields has
    /// the name, once.
    pub(crate) fn leave_out(&mut self, path: &str, name: String) {
        let is_named = self.left_out.iter().any(|(_, named)| *named == name);
        if !is_named && self.left_out.len() < PROBLEMS_MAX {
            self.left_out.push((path.to_owned(), name));
        }
    }

    /// Names of the parts that were left out.
    pub(crate) fn left_out_names(&self) -> impl Iterator<Item = &str> {
        self.left_out.iter().map(|(_, name)| name.as_str())
    }

    /// Turns what was left out into errors, where no response could name it.
    pub(crate) fn reject_left_out(&mut self, constraint: &str) {
        for (path, _) in std::mem::take(&mut self.left_out) {
            self.reject(path, constraint);
        }
    }

    /// Records an error of a value outside of this object.
    pub(crate) fn add_problem(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// The value of `name`; null counts as absent.
    pub fn raw(&self, name: &str) -> Option<RawJson<'a>> {
        self.record(name, || json!({}));
        self.find_value(name)
    }

    /// The value of `name`, which this schema describes; null counts as absent.
    pub(crate) fn described(
        &self,
        name: &str,
        schema: impl FnOnce() -> Value,
    ) -> Option<RawJson<'a>> {
        self.record(name, schema);
        self.raw(name)
    }

    fn find_value(&self, name: &str) -> Option<RawJson<'a>> {
        let (i, (_, raw)) = self
            .object
            .entries()
            .enumerate()
            .find(|(_, (n, _))| *n == name)?;
        let mut read = self.read.get();
        read[i / 128] |= 1 << (i % 128);
        self.read.set(read);
        (json_type(raw) != JsonType::Null).then_some(raw)
    }

    /// Parses a boolean field.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        self.record(name, || json!({"type": "boolean"}));
        let raw = self.raw(name)?;
        parse_value(raw).or_reject(self, name, "must be true or false")
    }

    /// Parses a number in a range.
    pub fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Option<f32> {
        self.record(
            name,
            || json!({"type": "number", "minimum": range.start(), "maximum": range.end()}),
        );
        let raw = self.raw(name)?;
        let constraint = format_args!("must be a number from {} to {}", range.start(), range.end());
        number_in(raw, &range).or_reject(self, name, constraint)
    }

    /// Parses an integer in a range.
    pub fn integer(&mut self, name: &str, range: RangeInclusive<i128>) -> Option<i128> {
        self.record(name, || integer_schema(&range));
        let raw = self.raw(name)?;
        let value = whole_number(raw).filter(|v| range.contains(v));
        if value.is_none() {
            let (low, high) = (range.start(), range.end());
            let error_message = match i64::try_from(*high) {
                Ok(high) => format!("must be an integer from {low} to {high}"),
                Err(_) => format!("must be an integer of 64 bits, at least {low}"),
            };
            self.reject(name, error_message);
        }
        value
    }

    /// Parses an integer in a range within that of `T`.
    pub fn integer_as<T: TryFrom<i128>>(
        &mut self,
        name: &str,
        range: RangeInclusive<i128>,
    ) -> Option<T> {
        let value = self.integer(name, range)?;
        T::try_from(value).ok()
    }

    /// Parses a string field.
    pub fn string(&mut self, name: &str) -> Option<Cow<'a, str>> {
        self.record(name, || json!({"type": "string"}));
        let raw = self.raw(name)?;
        as_text(raw).or_reject(self, name, "must be a string")
    }

    /// Parses an object field.
    pub fn object(&mut self, name: &str) -> Option<JsonObject<'a>> {
        self.record(name, object_schema);
        let raw = self.raw(name)?;
        let constraint = format_args!("must be an object of at most {FIELDS_MAX} fields");
        as_object(raw).or_reject(self, name, constraint)
    }

    /// Parses the members of the object `name` with `read`; an absent object has no members. Errors are recorded with
    /// the path of the member.
    pub fn within<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let object = self
            .object(name)
            .unwrap_or_else(|| JsonObject::new(Vec::new()));
        let recorder = self.recorder.as_ref().map(|_| FieldRecorder::default());
        let mut inner = Self {
            recorder,
            ..Self::unread(object)
        };
        let value = read(&mut inner);
        if let Some(inner) = &inner.recorder {
            self.record(name, || json!({"properties": inner.take()}));
        }
        for problem in inner.problems {
            if self.problems.len() < PROBLEMS_MAX {
                let field = format!("{name}.{}", problem.field);
                self.problems.push(Problem { field, ..problem });
            }
        }
        value
    }

    /// Parses a list field of at most `max` values.
    pub fn array(&mut self, name: &str, max: usize) -> Option<Vec<RawJson<'a>>> {
        self.record(name, || array_schema(max));
        let raw = self.raw(name)?;
        let value = as_list(raw, max);
        if value.is_none() {
            let error_message = match max {
                usize::MAX => "must be a list".to_owned(),
                _ => format!("must be a list of at most {max} items"),
            };
            self.reject(name, error_message);
        }
        value
    }
}

/// Rejects a body whose values would take too much memory; a short body is below the limit.
fn expect_few_values(object: &JsonObject<'_>, body_bytes: usize) -> Result<(), ApiError> {
    if body_bytes <= bounds::VALUES_MAX {
        return Ok(());
    }
    let spend = |left, (name, raw)| bounds::count_values(name, raw, left);
    let spent = object.entries().try_fold(bounds::VALUES_MAX, spend);
    spent
        .map_err(|problem| ApiError::fields(vec![problem]))
        .map(|_| ())
}

/// The text of a string value; `None` for another type.
pub fn as_text(raw: RawJson<'_>) -> Option<Cow<'_, str>> {
    if json_type(raw) == JsonType::String {
        parse_value::<Name<'_>>(raw).map(|name| name.0)
    } else {
        None
    }
}

/// The members of an object value; `None` for another type.
pub fn as_object(raw: RawJson<'_>) -> Option<JsonObject<'_>> {
    match json_type(raw) {
        JsonType::Object => parse_value(raw),
        _ => None,
    }
}

/// The items of a list of at most `max` values; `None` for a longer list or another type.
pub fn as_list(raw: RawJson<'_>, max: usize) -> Option<Vec<RawJson<'_>>> {
    if json_type(raw) == JsonType::Array {
        parse_value::<Vec<RawJson<'_>>>(raw).filter(|items| items.len() <= max)
    } else {
        None
    }
}

/// Whether a list is empty.
pub fn is_empty_list(raw: RawJson<'_>) -> bool {
    let inside = raw.get().strip_prefix('[').map(str::trim_start);
    inside.is_some_and(|inside| inside.starts_with(']'))
}

/// A value that an error may repeat: a short number or boolean, never text. A number beyond the range of doubles is left
/// out, because many clients could not parse the error.
fn shown_value(raw: RawJson<'_>) -> Option<Box<str>> {
    let is_plain = match json_type(raw) {
        JsonType::Number => parse_value::<f64>(raw).is_some(),
        kind => kind == JsonType::Bool,
    };
    let text = raw.get();
    (is_plain && text.len() <= SHOWN_BYTES_MAX).then(|| text.into())
}

/// The error of a text that is no JSON object.
fn object_error(text: &str) -> ApiError {
    let error_message = match serde_json::from_str::<RawJson<'_>>(text) {
        Ok(raw) if json_type(raw) != JsonType::Object => {
            "the body must be a JSON object".to_owned()
        }
        Ok(_) => format!("the body has more than {FIELDS_MAX} fields"),
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            if error.is_eof() {
                format!("the body is truncated: JSON ends too early at {place}")
            } else {
                format!("the body is not JSON: see {place}")
            }
        }
    };
    ApiError::bad_request("invalid_json", error_message)
}

/// Levenshtein distance: insertions, deletions and replacements of characters that turn `a` into `b`, without regard
/// to ASCII case. Time grows with the product of the lengths and memory with their sum; callers bound both.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // Distances of the processed part of `a` to each prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(!from.eq_ignore_ascii_case(to));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The text of one valid JSON value, without white space around the value.
#[derive(Clone, Copy, Debug)]
pub struct RawJson<'a>(&'a str);

impl<'a> RawJson<'a> {
    /// The JSON text.
    pub fn get(self) -> &'a str {
        self.0
    }

    /// A value whose text was parsed earlier.
    pub(crate) fn of_parsed(text: &'a str) -> Self {
        Self(text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawJson<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self(raw.get()))
    }
}

impl Serialize for RawJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.0).unwrap_or(RawValue::NULL);
        raw.serialize(serializer)
    }
}

/// Names and values of an object, in the client's order.
pub struct JsonObject<'a>(Vec<(Cow<'a, str>, RawJson<'a>)>);

impl<'a> JsonObject<'a> {
    /// An object with these entries.
    pub(crate) fn new(entries: Vec<(Cow<'a, str>, RawJson<'a>)>) -> Self {
        Self(entries)
    }

    /// Entries in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, RawJson<'a>)> {
        self.0.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }

    /// Entries in order; a name is borrowed from the JSON text unless the text has escapes.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (Cow<'a, str>, RawJson<'a>)> {
        self.0.into_iter()
    }

    /// The value of `name`; null counts as absent.
    pub fn get(&self, name: &str) -> Option<RawJson<'a>> {
        self.entries()
            .find(|(n, _)| *n == name)
            .map(|(_, raw)| raw)
            .filter(|raw| json_type(*raw) != JsonType::Null)
    }

    /// The text of the member `name`; `None` for another type.
    pub fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(as_text)
    }

    /// The members of the member `name`; `None` for another type.
    pub fn object(&self, name: &str) -> Option<Self> {
        self.get(name).and_then(as_object)
    }

    /// Names that occur more than once.
    fn repeated_names(&self) -> impl Iterator<Item = &str> {
        (0..self.0.len()).filter_map(|i| {
            let name = &self.0[i].0;
            let before = self.0[..i].iter().filter(|(n, _)| n == name).count();
            (before == 1).then_some(name.as_ref())
        })
    }
}

impl Fields<'_> {
    /// Whether the object has a field `name`, null included.
    pub fn is_given(&self, name: &str) -> bool {
        self.object.entries().any(|(given, _)| given == name)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Entries<'a> {
            type Value = JsonObject<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<JsonObject<'a>, M::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<Name<'de>>()? {
                    if entries.len() == FIELDS_MAX {
                        return Err(M::Error::custom("too many fields"));
                    }
                    entries.push((name.0, map.next_value::<RawJson<'de>>()?));
                }
                Ok(JsonObject(entries))
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

/// A string that is borrowed from the JSON text unless the text has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
