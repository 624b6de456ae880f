//! The elements of metadata arrays.

use super::cursor::Cursor;
use super::error::GgufError;
use super::from_value::{FromValue, Mismatch};
use super::value::{Array, Value, read_value};
use super::value_kind::ValueKind;
use std::marker::PhantomData;

/// The elements of an array, each as a `T`.
#[derive(Clone)]
pub struct Elements<'a, T> {
    cursor: Cursor<'a>,
    kind: ValueKind,
    left: usize,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: FromValue<'a>> Elements<'a, T> {
    /// Requires that every element is a `T`; the iterator ends at the first other element.
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
        // Checked when the file was opened. A mapped file may be changed by other processes; then the array
        // ends early.
        let value = read_value(&mut self.cursor, self.kind, 0).ok()?;
        T::from_value(&value).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a, T: FromValue<'a>> ExactSizeIterator for Elements<'a, T> {}

impl<'a> Array<'a> {
    /// The elements.
    pub fn values(&self) -> Elements<'a, Value<'a>> {
        Elements::new(*self)
    }
}

/// The elements of an array, after a check that each is a `T`.
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
