//! Metadata values, borrowed from the file.

use super::cursor::Cursor;
use super::limits::ARRAY_DEPTH_MAX;
use super::{FromValue, GgufError};
use std::borrow::Cow;
use std::marker::PhantomData;

/// The type of a metadata value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs)]
#[repr(u32)]
pub enum ValueKind {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueKind {
    /// The kind with this number in the format.
    pub fn from_id(id: u32) -> Option<Self> {
        use ValueKind::*;
        const ALL: [ValueKind; 13] = [
            U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64,
        ];
        ALL.get(id as usize).copied()
    }

    /// Bytes of a value; for strings and arrays, the fewest there can be.
    pub(super) fn bytes_min(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }
}

impl std::fmt::Display for ValueKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", format!("{self:?}").to_lowercase())
    }
}

/// A string as the file has it. GGUF promises UTF-8 and most files keep the promise; vocabularies
/// made from byte tokens sometimes do not, and their bytes must survive.
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

    /// The text; what is not UTF-8 becomes U+FFFD.
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
    /// Its type.
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
    kind: ValueKind,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of its elements.
    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its elements as the file has them, without their type and number.
    pub fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its elements.
    pub fn values(&self) -> Elements<'a, Value<'a>> {
        Elements::new(*self)
    }
}

impl std::fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}; {}]", self.kind, self.len)
    }
}

/// The elements of an array, each as a `T`.
#[derive(Clone)]
pub struct Elements<'a, T> {
    cursor: Cursor<'a>,
    kind: ValueKind,
    left: usize,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: FromValue<'a>> Elements<'a, T> {
    /// The caller has seen that every element is a `T`; the iterator ends at one that is not.
    pub(super) fn new(array: Array<'a>) -> Self {
        Self {
            cursor: Cursor::new(array.bytes),
            kind: array.kind,
            left: array.len,
            of: PhantomData,
        }
    }
}

impl<'a, T: FromValue<'a>> Iterator for Elements<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        // Both were checked when the file was opened. A mapped file can be changed by others
        // under us; then the array ends early.
        let value = read_value(&mut self.cursor, self.kind, 0).ok()?;
        T::from_value(&value).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a, T: FromValue<'a>> ExactSizeIterator for Elements<'a, T> {}

/// Reads a value's type.
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

/// Reads a value of the given type that lies inside `depth` arrays, checking all of it.
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

/// Reads an array's type and length and goes over its elements once, so that later reads cannot
/// fail. Recursion is bounded by [`ARRAY_DEPTH_MAX`].
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
        // In range: `count` compared the product with what is left.
        _ => _ = end.take("array elements", len * kind.bytes_min())?,
    }
    let bytes = cursor.take("array elements", end.offset() - cursor.offset())?;
    Ok(Array {
        kind,
        len: len as usize,
        bytes,
    })
}
