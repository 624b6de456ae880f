//! Conversion of metadata values to Rust types.

use super::error::GgufError;
use super::value::{Array, Text, Value};

/// A Rust type that a metadata value converts to. Integers of all widths convert if the number fits; the two
/// widths of floats convert into each other; there are no other conversions.
pub trait FromValue<'a>: Sized {
    /// Name of the type in errors.
    const EXPECTED: &'static str;

    /// Converts the value.
    ///
    /// # Errors
    /// `Mismatch::Type` for a value of another type, `Mismatch::Range` for a number that does not fit.
    fn from_value(value: &Value<'a>) -> Result<Self, Mismatch>;
}

/// Why a conversion failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The value has another type.
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
                found: value.integer().map_or_else(
                    || format!("a value of type {}", value.kind()),
                    |v| v.to_string(),
                ),
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
