//! Metadata values, borrowed from the file.

use super::cursor::Cursor;
use super::error::GgufError;
use super::limits::ARRAY_DEPTH_MAX;
use super::value_kind::ValueKind;
use std::borrow::Cow;

/// A string of the file. GGUF requires UTF-8 and most files comply; vocabularies made from byte tokens may
/// not, and their bytes must be preserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<'a>(pub(super) &'a [u8]);

impl<'a> Text<'a> {
    /// The bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text, if it is UTF-8.
    pub fn as_str(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }

    /// The text, with invalid UTF-8 replaced by U+FFFD.
    pub fn to_lossy(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.0)
    }
}

impl std::fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_lossy())
    }
}

/// A metadata value.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(Text<'a>),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value<'_> {
    /// The type.
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::U8(_) => ValueKind::U8,
            Self::I8(_) => ValueKind::I8,
            Self::U16(_) => ValueKind::U16,
            Self::I16(_) => ValueKind::I16,
            Self::U32(_) => ValueKind::U32,
            Self::I32(_) => ValueKind::I32,
            Self::F32(_) => ValueKind::F32,
            Self::Bool(_) => ValueKind::Bool,
            Self::String(_) => ValueKind::String,
            Self::Array(_) => ValueKind::Array,
            Self::U64(_) => ValueKind::U64,
            Self::I64(_) => ValueKind::I64,
            Self::F64(_) => ValueKind::F64,
        }
    }

    /// The number, if it is an integer.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }
}

/// An array of values of one type, borrowed from the file.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    pub(super) kind: ValueKind,
    pub(super) len: usize,
    pub(super) bytes: &'a [u8],
}

impl Array<'static> {
    /// An array of small numbers that no file has.
    pub(crate) const fn of_u8(numbers: &'static [u8]) -> Self {
        Self {
            kind: ValueKind::U8,
            len: numbers.len(),
            bytes: numbers,
        }
    }
}

impl<'a> Array<'a> {
    /// The type of its elements.
    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as encoded in the file, without type and count.
    pub fn encoded(&self) -> &'a [u8] {
        self.bytes
    }
}

impl std::fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}; {}]", self.kind, self.len)
    }
}

/// The elements.
pub(super) fn read_kind(
    cursor: &mut Cursor<'_>,
    field: &'static str,
) -> Result<ValueKind, GgufError> {
    let offset = cursor.offset();
    let id = cursor.u32(field)?;
    ValueKind::from_id(id).ok_or_else(|| GgufError::Invalid {
        field,
        offset,
        why: format!("{id} is no type (0 to 12 are)"),
    })
}

/// Reads and checks a value of the given type inside `depth` arrays.
pub(super) fn read_value<'a>(
    cursor: &mut Cursor<'a>,
    kind: ValueKind,
    depth: u32,
) -> Result<Value<'a>, GgufError> {
    const FIELD: &str = "metadata value";
    Ok(match kind {
        ValueKind::U8 => Value::U8(u8::from_le_bytes(cursor.array(FIELD)?)),
        ValueKind::I8 => Value::I8(i8::from_le_bytes(cursor.array(FIELD)?)),
        ValueKind::U16 => Value::U16(u16::from_le_bytes(cursor.array(FIELD)?)),
        ValueKind::I16 => Value::I16(i16::from_le_bytes(cursor.array(FIELD)?)),
        ValueKind::U32 => Value::U32(cursor.u32(FIELD)?),
        ValueKind::I32 => Value::I32(i32::from_le_bytes(cursor.array(FIELD)?)),
        ValueKind::F32 => Value::F32(f32::from_le_bytes(cursor.array(FIELD)?)),
        ValueKind::Bool => Value::Bool(read_bool(cursor)?),
        ValueKind::String => Value::String(Text(cursor.string("metadata string", u64::MAX)?)),
        ValueKind::Array => Value::Array(read_array(cursor, depth + 1)?),
        ValueKind::U64 => Value::U64(cursor.u64(FIELD)?),
        ValueKind::I64 => Value::I64(i64::from_le_bytes(cursor.array(FIELD)?)),
        ValueKind::F64 => Value::F64(f64::from_le_bytes(cursor.array(FIELD)?)),
    })
}

fn read_bool(cursor: &mut Cursor<'_>) -> Result<bool, GgufError> {
    let offset = cursor.offset();
    match cursor.array("metadata bool")? {
        [0] => Ok(false),
        [1] => Ok(true),
        [other] => Err(GgufError::Invalid {
            field: "metadata bool",
            offset,
            why: format!("{other} is neither 0 nor 1"),
        }),
    }
}

/// Reads an array's type and length and checks all elements, so that later reads cannot fail.
/// [`ARRAY_DEPTH_MAX`] bounds the recursion.
fn read_array<'a>(cursor: &mut Cursor<'a>, depth: u32) -> Result<Array<'a>, GgufError> {
    if depth > ARRAY_DEPTH_MAX {
        return Err(GgufError::Limit {
            field: "array nesting",
            offset: cursor.offset(),
            value: depth.into(),
            max: ARRAY_DEPTH_MAX.into(),
        });
    }
    let kind = read_kind(cursor, "array element type")?;
    let len = cursor.count("array length", u64::MAX, kind.bytes_min())?;
    let mut end = cursor.clone();
    match kind {
        ValueKind::String | ValueKind::Array | ValueKind::Bool => {
            for _ in 0..len {
                read_value(&mut end, kind, depth)?;
            }
        }
        // In range: `count` compared the product with the remaining bytes.
        _ => _ = end.take("array elements", len * kind.bytes_min())?,
    }
    let bytes = cursor.take("array elements", end.offset() - cursor.offset())?;
    Ok(Array {
        kind,
        len: len as usize,
        bytes,
    })
}
