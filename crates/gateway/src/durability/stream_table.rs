//! The recorder's table of streams.

use super::news_list::ArrivedStream;
use super::pending_shows::Shown;
use super::recorded_stream::RecordedStream;
use super::stream_logs::StreamLogs;
use super::stream_slot::StreamSlot;
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
    pub(crate) recorded: Box<RecordedStream>,
    /// The logs, from their attachment on.
    pub(crate) logs: Option<Arc<StreamLogs>>,
}

impl TableEntry {
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
    pub(crate) fn insert(&mut self, arrived: ArrivedStream) {
        let ArrivedStream { slot, recorded } = arrived;
        let index = slot.index() as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(TableEntry {
            slot,
            recorded,
            logs: None,
        });
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
            black_box((entry.slot.changes(), entry.recorded.recorded_tokens(0)));
        }
        for entry in entries() {
            if let Some(logs) = &entry.logs {
                black_box(logs.touch(entry.recorded.recorded_tokens(0)));
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
