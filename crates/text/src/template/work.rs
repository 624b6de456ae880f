//! Bounded work of one rendering, beyond the number of instructions, which minijinja's fuel bounds.
//!
//! Filters, methods and operators count what they read and write: one unit for each item of a list, and for 16 bytes of a text.
//! A rendering stays on one thread, which therefore holds the count.

use super::bounded_filters::{self, VALUE_BYTES_MAX};
use crate::tokenizer::TEXT_BYTES_MAX;
use minijinja::{Environment, Error, ErrorKind, Value};
use std::cell::Cell;
use std::fmt;

/// Items of lists, or pieces of 16 bytes of texts, that one rendering may process.
pub const WORK_MAX: usize = 1 << 25;
/// Bytes of a text that count as one item.
const BYTES_PER_UNIT: usize = 16;

/// The filter that counts the size of a value. Templates do not use the name.
pub(super) const SIZE_FILTER: &str = "_w";
/// The filter that counts a factor of a repetition.
pub(super) const COUNT_FILTER: &str = "_n";

thread_local! {
    /// Units that are left to the rendering on this thread.
    static LEFT: Cell<usize> = const { Cell::new(WORK_MAX) };
}

/// The work exceeds [`WORK_MAX`]. Source of a minijinja error.
#[derive(Debug)]
pub(super) struct TooMuchWork;

impl fmt::Display for TooMuchWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it processes more than {WORK_MAX} items of lists, or {} bytes of texts (WORK_MAX)",
            WORK_MAX * BYTES_PER_UNIT
        )
    }
}

impl std::error::Error for TooMuchWork {}

/// Begins a rendering on this thread.
pub(super) fn begin() {
    LEFT.set(WORK_MAX);
}

/// Counts items.
pub(super) fn spend(items: usize) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(items);
    LEFT.set(left.unwrap_or(0));
    let too_much =
        || Error::new(ErrorKind::InvalidOperation, "too much work").with_source(TooMuchWork);
    left.map(|_| ()).ok_or_else(too_much)
}

/// Counts the bytes of a text.
pub(super) fn spend_bytes(bytes: usize) -> Result<(), Error> {
    spend(bytes / BYTES_PER_UNIT)
}

/// Counts the size of a value. A text longer than any prompt, and a list longer than any that a filter produces, are rejected.
pub(super) fn spend_size(value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => {
            bounded_filters::at_most(text.len(), TEXT_BYTES_MAX)?;
            spend_bytes(text.len())
        }
        None => bounded_filters::items(value.len().unwrap_or(0)),
    }
}

/// Registers the filters.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_filter(SIZE_FILTER, |value: Value| {
        spend_size(&value).map(|()| value)
    });
    environment.add_filter(COUNT_FILTER, |value: Value| {
        let size = match value.as_str() {
            Some(text) => text.len(),
            None => value.as_usize().or_else(|| value.len()).unwrap_or(0),
        };
        bounded_filters::at_most(size, VALUE_BYTES_MAX)?;
        spend(size).map(|()| value)
    });
}
