//! Metadata of a file: where each key and value lies, and typed questions to it.

use super::cursor::Cursor;
use super::limits::{ENTRY_BYTES_MIN, KEY_BYTES_MAX, METADATA_ENTRIES_MAX};
use super::value::{read_kind, read_value};
use super::{Array, Elements, GgufError, Text, Value, ValueKind};
use std::ops::Range;

/// Where the entries of one file lie.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    entries: Vec<Entry>,
    /// Indices of `entries`, sorted by key.
    by_key: Vec<u32>,
}

/// Where one entry lies.
#[derive(Debug)]
pub(super) struct Entry {
    key: Range<usize>,
    kind: ValueKind,
    value: Range<usize>,
}

impl Metadata {
    /// Reads `count` entries, checking all of them.
    pub(super) fn read(
        cursor: &mut Cursor<'_>,
        bytes: &[u8],
        count: u64,
    ) -> Result<Self, GgufError> {
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let key = read_key(cursor)?;
            let kind = read_kind(cursor, "metadata type")?;
            let start = cursor.offset() as usize;
            read_value(cursor, kind, 0)?;
            entries.push(Entry {
                key,
                kind,
                value: start..cursor.offset() as usize,
            });
        }
        let key_at = |index: &u32| &bytes[entries[*index as usize].key.clone()];
        let mut by_key: Vec<u32> = (0..count as u32).collect();
        by_key.sort_by(|a, b| key_at(a).cmp(key_at(b))); // stable: equal keys stay in file order
        for pair in by_key.windows(2) {
            if key_at(&pair[0]) == key_at(&pair[1]) {
                return Err(GgufError::DuplicateKey {
                    key: String::from_utf8_lossy(key_at(&pair[1])).into_owned(),
                    offset: entries[pair[1] as usize].key.start as u64,
                });
            }
        }
        Ok(Self { entries, by_key })
    }

    /// The bound of the count that precedes the entries.
    pub(super) fn read_count(cursor: &mut Cursor<'_>) -> Result<u64, GgufError> {
        cursor.count("metadata count", METADATA_ENTRIES_MAX, ENTRY_BYTES_MIN)
    }

    /// The value of a key, and where it lies.
    pub(super) fn get<'a>(&self, bytes: &'a [u8], key: &str) -> Option<(Value<'a>, u64)> {
        let at = self
            .by_key
            .binary_search_by(|&at| {
                bytes[self.entries[at as usize].key.clone()].cmp(key.as_bytes())
            })
            .ok()?;
        let entry = &self.entries[self.by_key[at] as usize];
        Some((entry.value(bytes)?, entry.value.start as u64))
    }

    /// All keys and values, in file order.
    pub(super) fn iter<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.entries.iter().filter_map(move |entry| {
            let key = std::str::from_utf8(&bytes[entry.key.clone()]).ok()?;
            Some((key, entry.value(bytes)?))
        })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    fn value<'a>(&self, bytes: &'a [u8]) -> Option<Value<'a>> {
        read_value(&mut Cursor::new(&bytes[self.value.clone()]), self.kind, 0).ok()
    }
}

fn read_key(cursor: &mut Cursor<'_>) -> Result<Range<usize>, GgufError> {
    const FIELD: &str = "metadata key";
    let offset = cursor.offset();
    let key = cursor.string(FIELD, KEY_BYTES_MAX)?;
    let invalid = |why: &str| GgufError::Invalid {
        field: FIELD,
        offset,
        why: why.to_owned(),
    };
    if key.is_empty() {
        return Err(invalid("is empty"));
    }
    if std::str::from_utf8(key).is_err() {
        return Err(invalid("is not UTF-8"));
    }
    let end = cursor.offset() as usize;
    Ok(end - key.len()..end)
}

/// A Rust type that a metadata value can be read as. Integers of every width convert if the number
/// fits; the two widths of floats convert into each other; nothing else does.
pub trait FromValue<'a>: Sized {
    /// What to call it in an error.
    const EXPECTED: &'static str;

    /// The value as this type.
    ///
    /// # Errors
    /// `Mismatch::Type` if it is of another type, `Mismatch::Range` if the number does not fit.
    fn from_value(value: &Value<'a>) -> Result<Self, Mismatch>;
}

/// Why a value is not what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It is of another type.
    Type,
    /// The number does not fit.
    Range,
    /// The string is not UTF-8.
    Utf8,
}

impl Mismatch {
    /// The error for a key whose value is `value`.
    pub(super) fn at(self, key: &str, expected: &'static str, value: &Value<'_>) -> GgufError {
        let key = key.to_owned();
        match self {
            Self::Type => GgufError::wrong_type(&key, expected, value.kind()),
            Self::Range => GgufError::OutOfRange {
                key,
                expected,
                found: value
                    .integer()
                    .map_or_else(|| format!("{value:?}"), |v| v.to_string()),
            },
            Self::Utf8 => GgufError::NotUtf8 { key },
        }
    }
}

macro_rules! integers {
    ($($type:ty => $name:literal),*) => {$(
        impl FromValue<'_> for $type {
            const EXPECTED: &'static str = $name;

            fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
                let number = value.integer().ok_or(Mismatch::Type)?;
                Self::try_from(number).map_err(|_| Mismatch::Range)
            }
        }
    )*};
}

integers!(u8 => "u8", u16 => "u16", u32 => "u32", u64 => "u64", usize => "usize",
          i8 => "i8", i16 => "i16", i32 => "i32", i64 => "i64");

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "f32";

    fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
        match *value {
            Value::F32(v) => Ok(v),
            Value::F64(v) if v.is_finite() && (v as f32).is_infinite() => Err(Mismatch::Range),
            Value::F64(v) => Ok(v as f32),
            _ => Err(Mismatch::Type),
        }
    }
}

impl FromValue<'_> for f64 {
    const EXPECTED: &'static str = "f64";

    fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
        match *value {
            Value::F32(v) => Ok(v.into()),
            Value::F64(v) => Ok(v),
            _ => Err(Mismatch::Type),
        }
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "bool";

    fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
        match *value {
            Value::Bool(v) => Ok(v),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> FromValue<'a> for Text<'a> {
    const EXPECTED: &'static str = "string";

    fn from_value(value: &Value<'a>) -> Result<Self, Mismatch> {
        match *value {
            Value::String(v) => Ok(v),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "string";

    fn from_value(value: &Value<'a>) -> Result<Self, Mismatch> {
        Text::from_value(value)?.as_str().ok_or(Mismatch::Utf8)
    }
}

impl<'a> FromValue<'a> for Array<'a> {
    const EXPECTED: &'static str = "array";

    fn from_value(value: &Value<'a>) -> Result<Self, Mismatch> {
        match *value {
            Value::Array(v) => Ok(v),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> FromValue<'a> for Value<'a> {
    const EXPECTED: &'static str = "any value";

    fn from_value(value: &Value<'a>) -> Result<Self, Mismatch> {
        Ok(*value)
    }
}

/// The elements of an array, after each was seen to be a `T`.
pub(super) fn elements<'a, T: FromValue<'a>>(
    key: &str,
    array: Array<'a>,
) -> Result<Elements<'a, T>, GgufError> {
    for value in array.values() {
        if let Err(mismatch) = T::from_value(&value) {
            return Err(match mismatch {
                Mismatch::Type => GgufError::WrongType {
                    key: key.to_owned(),
                    expected: T::EXPECTED,
                    found: format!("array of {}", array.kind()),
                },
                other => other.at(key, T::EXPECTED, &value),
            });
        }
    }
    Ok(Elements::new(array))
}
