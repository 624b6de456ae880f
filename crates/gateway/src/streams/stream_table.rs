//! The recorder's streams: by index, with news for a turn, and what a commit will show of them.

use super::journal_copy::JournalCopy;
use super::stream_logs::StreamLogs;
use super::stream_slot::StreamSlot;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

/// Streams by index. The recorder locks the table for the parts of a turn in which nothing is written to the disk.
#[derive(Default)]
pub(crate) struct StreamTable {
    entries: Vec<Option<TableEntry>>,
}

/// One stream as the recorder knows it.
pub(crate) struct TableEntry {
    pub(crate) slot: Arc<StreamSlot>,
    pub(crate) copy: Box<JournalCopy>,
    /// The logs, from their attachment on.
    pub(crate) logs: Option<Arc<StreamLogs>>,
}

impl TableEntry {
    /// A stream whose logs are not attached yet.
    pub(crate) fn new(slot: &Arc<StreamSlot>, copy: JournalCopy) -> Self {
        Self {
            slot: Arc::clone(slot),
            copy: Box::new(copy),
            logs: None,
        }
    }

    /// Shows acknowledged records to the readers, or to the handle.
    pub(crate) fn show(&self, shown: Shown) {
        match (shown, &self.logs) {
            (Shown::Tokens { choice, tokens }, Some(logs)) => {
                logs.show_tokens(choice as usize, tokens);
            }
            (Shown::End { choice }, Some(logs)) => logs.show_end(choice as usize),
            (Shown::Changes { changes }, _) => self.slot.acknowledge(changes),
            _ => {}
        }
    }
}

impl StreamTable {
    pub(crate) fn insert(&mut self, entry: TableEntry) {
        let index = entry.slot.index() as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(entry);
    }

    pub(crate) fn get(&self, index: u32) -> Option<&TableEntry> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut TableEntry> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<TableEntry> {
        self.entries.get_mut(index as usize)?.take()
    }

    /// Loads what a turn will read of these streams into the cache: independent loads overlap, while the recording of one
    /// stream waits for each of its own in turn.
    pub(crate) fn touch(&self, indexes: &[u32]) {
        let entries = || indexes.iter().filter_map(|&index| self.get(index));
        for entry in entries() {
            black_box((entry.slot.changes(), entry.copy.recorded_tokens(0)));
        }
        for entry in entries() {
            if let Some(logs) = &entry.logs {
                black_box(logs.touch(entry.copy.recorded_tokens(0)));
            }
        }
    }

    /// Drops the logs of streams whose handle was dropped. For a recorder that makes no progress.
    pub(crate) fn drop_released_logs(&mut self) {
        let released = self.entries.iter_mut().flatten();
        for entry in released.filter(|entry| entry.slot.is_released()) {
            entry.logs = None;
        }
    }
}

/// Entries that one stream may have in the list: those of a turn that was just begun, and of the turn before.
const ENTRIES_PER_STREAM: usize = 2;

/// News that the recorder takes at the beginning of a turn.
#[derive(Default)]
pub(crate) struct NewsList {
    /// Indexes of streams with news.
    pub(crate) indexes: Vec<u32>,
    /// Streams that the recorder does not know yet.
    pub(crate) new_streams: Vec<TableEntry>,
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
    pub(crate) fn push_new(&mut self, entry: TableEntry) {
        self.list.new_streams.push(entry);
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

/// Commit of a record that was appended in this turn.
const THIS_TURN: u64 = u64::MAX;

/// Records of streams in the order of commits.
#[derive(Default)]
pub(crate) struct PendingShows {
    queue: VecDeque<PendingShow>,
}

/// Something to be shown.
struct PendingShow {
    /// Number of the commit that contains the record.
    commit: u64,
    /// Index of the stream in the recorder's table.
    index: u32,
    shown: Shown,
}

/// Part of a stream that is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// Tokens of a choice before this index.
    Tokens { choice: u32, tokens: u64 },
    /// The end of a choice.
    End { choice: u32 },
    /// The first changes of the handle.
    Changes { changes: u64 },
    /// Everything; the handle was dropped, and nothing of the stream follows.
    Released,
}

impl PendingShows {
    /// Adds something that was appended in this turn.
    pub(crate) fn push(&mut self, index: u32, shown: Shown) {
        self.queue.push_back(PendingShow {
            commit: THIS_TURN,
            index,
            shown,
        });
    }

    /// Sets the commit of what was appended in this turn.
    pub(crate) fn set_commit(&mut self, commit: u64) {
        let last = self.queue.iter_mut().rev();
        for show in last.take_while(|show| show.commit == THIS_TURN) {
            show.commit = commit;
        }
    }

    /// Indexes of the streams whose changes were appended in this turn.
    pub(crate) fn changed_in_this_turn(&self) -> impl Iterator<Item = u32> {
        let last = self.queue.iter().rev();
        let of_turn = last.take_while(|show| show.commit == THIS_TURN);
        of_turn.filter_map(|show| match show.shown {
            Shown::Changes { .. } => Some(show.index),
            _ => None,
        })
    }

    /// The first entry, if its commit is acknowledged.
    pub(crate) fn pop_acknowledged(&mut self, acknowledged: u64) -> Option<(u32, Shown)> {
        let is_acknowledged = |show: &mut PendingShow| show.commit <= acknowledged;
        let show = self.queue.pop_front_if(is_acknowledged)?;
        Some((show.index, show.shown))
    }
}
