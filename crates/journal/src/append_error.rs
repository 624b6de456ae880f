//! Why a record was not taken.

use crate::record_encoder::RecordError;
use std::fmt;

/// A record that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// No live stream has the key.
    UnknownStream,
    /// The bound of live streams is reached.
    TooManyStreams,
    /// The kind is written by the writer itself.
    ReservedKind,
    /// The record is beyond a bound of the format.
    Record(RecordError),
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownStream => write!(f, "no live stream of the journal has this key"),
            Self::TooManyStreams => write!(f, "the journal has as many streams as it may have"),
            Self::ReservedKind => write!(f, "records of this kind are written by the journal"),
            Self::Record(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AppendError {}

impl From<RecordError> for AppendError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}
