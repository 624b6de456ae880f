//! What a registry tells of a stream.

use super::caller::Owner;
use super::gone::Eviction;
use crate::StreamId;
use crate::sync::Arc;
use std::time::Instant;

/// A stream as the registry knows it.
#[derive(Debug)]
pub struct Entry<E> {
    /// Its name.
    pub id: StreamId,
    /// Whose it is.
    pub owner: Owner,
    /// When it was registered.
    pub opened_at: Instant,
    /// Open, or ended.
    pub state: EntryState,
    /// What whoever registered it put here.
    pub payload: Arc<E>,
}

/// How far an entry's life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Its end was not told yet.
    Open,
    /// Its end was told; it is kept until its time, or the room for it, runs out.
    Ended {
        /// When, as told.
        at: Instant,
    },
}

/// Some entries, in order of opening.
#[derive(Debug)]
pub struct Page<E> {
    /// At most [`LIST_PAGE_MAX`](super::LIST_PAGE_MAX).
    pub entries: Vec<Entry<E>>,
    /// Where the next page starts, if there is more.
    pub next: Option<ListCursor>,
}

/// A place in a list: after the entry with this number. It stays good when that entry leaves.
/// Numbers count the streams of all owners, in order of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListCursor(pub u64);

/// There is no such entry for this caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// It never was, or it is another's, or it left longer ago than is remembered.
    Unknown,
    /// It was here, and the caller's to see; its window is gone.
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
