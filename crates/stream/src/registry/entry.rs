//! Entries of a registry.

use super::caller::Owner;
use super::gone::Eviction;
use crate::StreamId;
use crate::sync::Arc;
use std::time::Instant;

/// A stream's entry.
#[derive(Debug)]
pub struct Entry<E> {
    /// Id of the stream.
    pub id: StreamId,
    /// Owner of the stream.
    pub owner: Owner,
    /// Position in lists: the next page after this entry.
    pub cursor: ListCursor,
    /// Time of the registration.
    pub opened_at: Instant,
    /// Open, or ended.
    pub state: EntryState,
    /// The payload of the registration.
    pub payload: Arc<E>,
}

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// The end was not reported yet.
    Open,
    /// The end was reported; retained until a limit of time, count or bytes is reached.
    Ended {
        /// Reported time of the end.
        at: Instant,
    },
}

/// A page of entries, in order of opening.
#[derive(Debug)]
pub struct Page<E> {
    /// At most [`LIST_PAGE_MAX`](super::LIST_PAGE_MAX).
    pub entries: Vec<Entry<E>>,
    /// Start of the next page, if there is one.
    pub next: Option<ListCursor>,
}

/// Position in a list: after the entry with this number. Stays valid when that entry is removed. Numbers count
/// the streams of all owners, in order of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListCursor(pub u64);

/// The entry does not exist for this caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// Never registered, or another owner's, or removed too long ago.
    Unknown,
    /// The entry was visible to the caller and was removed.
    Gone(Eviction),
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such stream",
            Self::Gone(Eviction::Expired) => "the stream ended too long ago to be read again",
            Self::Gone(Eviction::Count | Eviction::Bytes) => {
                "the stream ended and had to make room for others"
            }
            Self::Gone(Eviction::Forgotten) => "the stream was deleted",
            Self::Gone(Eviction::Dropped) => "the stream was given up before its end was recorded",
        })
    }
}

impl std::error::Error for Missing {}
