//! Streams with news for the recorder, by their index.

use super::recorded_stream::RecordedStream;
use super::stream_slot::StreamSlot;
use std::sync::Arc;

/// Entries that one stream may have in the list: those of a turn that was just begun, and of the turn before.
const ENTRIES_PER_STREAM: usize = 2;

/// News that the recorder takes at the beginning of a turn.
#[derive(Default)]
pub(crate) struct NewsList {
    /// Indexes of streams with news.
    pub(crate) indexes: Vec<u32>,
    /// Streams that the recorder does not know yet.
    pub(crate) arrived: Vec<ArrivedStream>,
}

/// A stream for the recorder's table.
pub(crate) struct ArrivedStream {
    pub(crate) slot: Arc<StreamSlot>,
    /// Records of an earlier process.
    pub(crate) recorded: Box<RecordedStream>,
}

/// The list between two turns, and the indexes.
#[derive(Default)]
pub(crate) struct PendingNews {
    list: NewsList,
    /// Indexes in use or in `free`.
    indexes: u32,
    free: Vec<u32>,
}

impl PendingNews {
    /// An index for a stream. The lists get space for all indexes, so that none of them grows in the token path.
    pub(crate) fn take_index(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let index = self.indexes;
            self.indexes += 1;
            let streams = self.indexes as usize;
            self.free.reserve(streams);
            let entries = streams * ENTRIES_PER_STREAM;
            let more = entries.saturating_sub(self.list.indexes.len());
            self.list.indexes.reserve(more);
            index
        })
    }

    /// Returns the index of a stream that the recorder has removed.
    pub(crate) fn free_index(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Adds a stream that the recorder does not know yet.
    pub(crate) fn push_arrived(&mut self, arrived: ArrivedStream) {
        self.list.arrived.push(arrived);
    }

    /// Adds a stream with news. `true`: the list was empty, and the recorder is to be woken.
    pub(crate) fn push(&mut self, index: u32) -> bool {
        let was_empty = self.list.indexes.is_empty();
        self.list.indexes.push(index);
        was_empty
    }

    /// Exchanges the list for an empty one.
    pub(crate) fn take(&mut self, empty: &mut NewsList) {
        empty.indexes.reserve(self.list.indexes.capacity());
        std::mem::swap(&mut self.list, empty);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.indexes.is_empty()
    }
}
