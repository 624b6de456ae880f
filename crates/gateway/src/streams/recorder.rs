//! The journal's caller on the thread `journal`: what the streams have written goes into the journal, and what the
//! journal has acknowledged is shown.
//!
//! A turn takes the list of streams with news. For each of them, in this order: the changes of the handle; the tokens of
//! each choice behind the recorded ones, and the ends; the control state without the updates that are in these tokens.
//! After the commit, and after each sync, what acknowledged commits contain is shown to the readers.
//!
//! The table of streams is locked while records are collected and while they are shown, not during a commit.
//!
//! The counters of applied control updates are read around the lengths: first how many are applied, then the lengths,
//! then how many were begun. If one more was begun, its injected tokens may be below the lengths or not, and the stream
//! waits for the next turn. So the journal never has injected tokens beside an update that is still to be applied.

use super::stream_journal::{DurabilityLog, JournalGauges, JournalState};
use super::stream_logs::{StreamLogs, TokenBuffers, WrittenChoice};
use super::stream_table::{NewsList, PendingShows, Shown, StreamTable, TableEntry};
use crate::locks::lock;
use journal::{
    AppendError, Durability, FileSystem, Record, RecordTap, Recorder, StreamKey, Writer,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stream::{End, FailCode};

/// Reason of `Forgotten`: the retention of the stream is over, or the stream was given up.
const NOT_RETAINED: u32 = 1;

/// Bytes of records that are written together where control updates were applied: more than the tokens of a step.
const CONTROL_FRAME_BYTES: usize = 64 << 10;

/// Streams whose lines are loaded into the cache together.
const TOUCHED_TOGETHER: usize = 16;

/// Records what streams write.
pub(crate) struct StreamRecorder {
    state: Arc<JournalState>,
    /// Indexes of the streams in the journal.
    indexes: HashMap<StreamKey, u32>,
    /// News of this turn.
    news: NewsList,
    pending: PendingShows,
    written: Vec<WrittenChoice>,
    buffers: TokenBuffers,
    /// State of the journal when the streams' flags were set last.
    seen: SeenState,
    log: DurabilityLog,
}

/// Whatever may change which streams are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenState {
    durability: Durability,
    gaps: usize,
    rewritten: u64,
}

impl StreamRecorder {
    /// A recorder that knows the streams of `state`.
    pub(crate) fn new(state: &Arc<JournalState>) -> Self {
        let mut recorder = Self {
            state: Arc::clone(state),
            indexes: HashMap::new(),
            news: NewsList::default(),
            pending: PendingShows::default(),
            written: Vec::new(),
            buffers: TokenBuffers::new(),
            seen: SeenState {
                durability: Durability::Durable,
                gaps: 0,
                rewritten: 0,
            },
            log: DurabilityLog::default(),
        };
        recorder.admit_streams(&mut lock(&state.table));
        recorder
    }

    /// Takes the list of the turn, and new streams into the table.
    fn admit_streams(&mut self, table: &mut StreamTable) {
        self.state.take_news(&mut self.news);
        for entry in self.news.new_streams.drain(..) {
            if let Some(key) = entry.copy.key {
                self.indexes.insert(key, entry.slot.index());
            }
            table.insert(entry);
        }
    }

    fn record_news<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        table: &mut StreamTable,
        indexes: &[u32],
    ) {
        for block in indexes.chunks(TOUCHED_TOGETHER) {
            table.touch(block);
            for &index in block {
                if let Some(entry) = table.get_mut(index) {
                    self.record_stream(writer, entry);
                }
            }
        }
    }

    fn record_stream<F: FileSystem>(&mut self, writer: &mut Writer<F>, entry: &mut TableEntry) {
        if entry.copy.is_released {
            return;
        }
        let mut appended = Ok(());
        if entry.slot.changes() > entry.copy.changes {
            appended = self.record_changes(writer, entry);
        }
        if let (Ok(()), Some(key)) = (&appended, entry.copy.key) {
            appended = self.record_logs(writer, entry, key);
        }
        if let Err(error) = appended {
            tracing::warn!(%error, "a stream is not recorded");
            self.forget_stream(writer, entry);
            entry.slot.open_gates();
        }
    }

    fn record_changes<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        entry: &mut TableEntry,
    ) -> Result<(), AppendError> {
        let index = entry.slot.index();
        let mut inbox = lock(&entry.slot.inbox);
        let news = std::mem::take(&mut inbox.news);
        let (is_forgotten, is_open) = (inbox.is_forgotten, inbox.is_open);
        entry.copy.changes = entry.slot.changes();
        entry.copy.is_released = inbox.is_released;
        if inbox.logs.is_some() {
            entry.logs = inbox.logs.clone();
        }
        drop(inbox);
        if is_open {
            entry.slot.set_durable(false);
        }
        let mut appended = Ok(());
        if is_open || is_forgotten {
            self.forget_stream(writer, entry);
        } else {
            let is_new = entry.copy.key.is_none();
            appended = entry.copy.append_news(writer, entry.slot.id, news);
            if let Some(key) = entry.copy.key.filter(|_| is_new) {
                self.indexes.insert(key, index);
            }
        }
        if is_open {
            entry.slot.acknowledge(u64::MAX);
        } else if appended.is_ok() {
            // A deletion, too, is confirmed to its client when the journal has it.
            let changes = entry.copy.changes;
            self.pending.push(index, Shown::Changes { changes });
        }
        // Also after an error: later turns leave a released stream out.
        if entry.copy.is_released {
            self.pending.push(index, Shown::Released);
        }
        appended
    }

    /// Appends what the logs have beyond the recorded tokens.
    fn record_logs<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        entry: &mut TableEntry,
        key: StreamKey,
    ) -> Result<(), AppendError> {
        let copy = &mut *entry.copy;
        let Some(logs) = entry.logs.as_deref().filter(|_| !copy.is_released) else {
            return if copy.has_control_news(0) {
                copy.append_control(writer, key, 0)
            } else {
                Ok(())
            };
        };
        copy.recovered = None;
        let is_steered = copy.is_steered();
        let applied = is_steered.then(|| (logs.updates_applied(), logs.applied_count()));
        logs.read_written(&mut self.written);
        if applied.is_some_and(|(_, count)| logs.begun_count() != count) {
            entry.slot.note_change();
            return Ok(());
        }
        copy.append_start(writer, key, logs)?;
        let applied = applied.map(|(applied, _)| applied);
        let applied = applied.filter(|applied| copy.has_control_news(*applied));
        if applied.is_some() {
            writer.keep_together(CONTROL_FRAME_BYTES);
        }
        copy.add_choices(self.written.len());
        for choice in 0..self.written.len() {
            self.record_choice(writer, entry, (key, choice))?;
        }
        match applied {
            Some(applied) => entry.copy.append_control(writer, key, applied),
            None => Ok(()),
        }
    }

    fn record_choice<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        entry: &mut TableEntry,
        (key, choice): (StreamKey, usize),
    ) -> Result<(), AppendError> {
        let Some(logs) = entry.logs.as_deref() else {
            return Ok(());
        };
        let (copy, index) = (&mut *entry.copy, entry.slot.index());
        let written = self.written[choice];
        let from = copy.choices[choice].tokens;
        let is_open = copy.choices[choice].end.is_none();
        // The format's bound on choices is below 2^32.
        let number = choice as u32;
        let tokens = append_tokens(
            writer,
            logs,
            (key, number),
            from,
            written,
            &mut self.buffers,
        )?;
        copy.choices[choice].tokens = tokens;
        let is_leaving = entry.slot.is_leaving();
        let is_final = |end: &End| is_open && !is_leaving && self.is_final(*end);
        let end = written.end.filter(is_final);
        if let Some(end) = end {
            let at_unix_us = copy.append_end(writer, key, choice, end)?;
            logs.ended_time().record(at_unix_us);
            self.pending.push(index, Shown::End { choice: number });
        } else if tokens > from {
            let choice = number;
            self.pending.push(index, Shown::Tokens { choice, tokens });
        }
        Ok(())
    }

    /// An end by the shutdown is none: the stream continues in the next process.
    fn is_final(&self, end: End) -> bool {
        end != End::Failed(FailCode::Shutdown) || !self.state.is(|state| &state.is_shutting_down)
    }

    /// Removes a stream from the journal. Without effect on a stream that was removed before.
    fn forget_stream<F: FileSystem>(&mut self, writer: &mut Writer<F>, entry: &mut TableEntry) {
        if let Some(key) = entry.copy.key {
            // An unknown key: the stored response was given up for space.
            let _ = writer.forget_stream(key, NOT_RETAINED);
            self.indexes.remove(&key);
        }
        entry.copy.clear();
    }

    /// Shows what is acknowledged, and removes the streams that were released.
    fn show_acknowledged(&mut self, table: &mut StreamTable, acknowledged: u64) {
        while let Some((index, shown)) = self.pending.pop_acknowledged(acknowledged) {
            if let Shown::Released = shown {
                let removed = table.remove(index);
                if let Some(key) = removed.and_then(|entry| entry.copy.key) {
                    self.indexes.remove(&key);
                }
                self.state.free_index(index);
            } else if let Some(entry) = table.get(index) {
                entry.show(shown);
            }
        }
    }

    /// Sets the flags of streams that became durable, or ceased to be.
    fn update_durability<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        table: &mut StreamTable,
    ) {
        for key in writer.take_released() {
            let index = self.indexes.remove(&key);
            if let Some(entry) = index.and_then(|index| table.get_mut(index)) {
                entry.copy.key = None;
                entry.slot.set_durable(false);
            }
        }
        let seen = SeenState {
            durability: writer.durability(),
            gaps: writer.sizes().gaps,
            rewritten: writer.counts().rewritten_streams,
        };
        if seen != self.seen {
            self.seen = seen;
            for (key, index) in &self.indexes {
                if let Some(entry) = table.get(*index) {
                    entry.slot.set_durable(writer.is_durable(*key));
                }
            }
        }
    }

    /// A stream whose beginning was appended in this turn is durable from the acknowledgement on.
    fn note_new_streams<F: FileSystem>(&self, writer: &Writer<F>, table: &StreamTable) {
        for index in self.pending.changed_in_this_turn() {
            if let Some(entry) = table.get(index)
                && !entry.slot.is_durable()
            {
                let key = entry.copy.key;
                let is_durable = key.is_some_and(|key| writer.is_durable(key));
                entry.slot.set_durable(is_durable);
            }
        }
    }
}

/// Appends the tokens of a choice from `from` on, and returns how many of the choice are appended now.
fn append_tokens<F: FileSystem>(
    writer: &mut Writer<F>,
    logs: &StreamLogs,
    (key, choice): (StreamKey, u32),
    from: u64,
    written: WrittenChoice,
    buffers: &mut TokenBuffers,
) -> Result<u64, AppendError> {
    let mut at = from;
    while at < written.tokens {
        logs.copy_tokens(choice as usize, at, written.tokens, buffers);
        if buffers.len() == 0 {
            break;
        }
        let tokens = buffers.as_record(choice, at);
        writer.append(key, &Record::Tokens(tokens))?;
        at += buffers.len() as u64;
    }
    Ok(at)
}

impl<F: FileSystem> Recorder<F> for StreamRecorder {
    fn collect_records(&mut self, writer: &mut Writer<F>) {
        self.state.is_busy.store(true, Ordering::Release);
        self.state.beats.fetch_add(1, Ordering::Release);
        let state = Arc::clone(&self.state);
        let mut table = lock(&state.table);
        self.admit_streams(&mut table);
        let mut indexes = std::mem::take(&mut self.news.indexes);
        self.record_news(writer, &mut table, &indexes);
        indexes.clear();
        self.news.indexes = indexes;
    }

    fn note_commit(&mut self, writer: &mut Writer<F>, commit: u64) {
        let state = Arc::clone(&self.state);
        let mut table = lock(&state.table);
        self.note_new_streams(writer, &table);
        self.pending.set_commit(commit);
        self.update_durability(writer, &mut table);
        self.show_acknowledged(&mut table, writer.acknowledged());
        drop(table);
        self.log.note(writer.durability(), writer.sizes().gaps);
        *lock(&self.state.gauges) = JournalGauges::of_writer(writer);
        self.state.beats.fetch_add(1, Ordering::Release);
        self.state.is_busy.store(false, Ordering::Release);
    }

    fn rewrite_stream(&mut self, writer: &mut Writer<F>, key: StreamKey) {
        let table = lock(&self.state.table);
        let index = self.indexes.get(&key);
        if let Some(entry) = index.and_then(|index| table.get(*index)) {
            super::journal_copy::rewrite_stream(writer, key, entry, &mut self.buffers);
        }
    }

    fn copy_stream(&mut self, tap: &mut dyn RecordTap, key: StreamKey, id: u128) {
        let table = lock(&self.state.table);
        let index = self.indexes.get(&key);
        if let Some(entry) = index.and_then(|index| table.get(*index)) {
            super::journal_copy::copy_stream(tap, id, entry, &mut self.buffers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::StreamFeed;
    use crate::streams::journal_copy::JournalCopy;
    use crate::streams::stream_slot::StreamNews;
    use crate::streams::stream_slot::StreamSlot;
    use journal::{JournalConfig, JournalDirectory, open_journal};
    use std::time::Duration;
    use testing::folder::Folder;

    #[test]
    fn released_stream_that_cannot_be_recorded_leaves_the_table() {
        let folder = Folder::new("released");
        let directory = JournalDirectory::new(folder.0.join("journal"));
        let config = JournalConfig {
            streams_max: 1,
            ..JournalConfig::default()
        };
        let (mut writer, _) = open_journal(directory, config).expect("a journal");
        let state = JournalState::new(1 << 20, StreamFeed::new());
        let mut recorder = StreamRecorder::new(&state);
        let insert = |id| {
            let first = StreamNews {
                open: Some(b"{}".to_vec().into()),
                ..StreamNews::default()
            };
            StreamSlot::insert(&state, id, 2, JournalCopy::default(), Some(first))
        };
        let (kept, left) = (insert(1), insert(2));
        // Another gateway continues the second stream, so that its records are not forgotten, and there is no place for one.
        left.is_leaving.store(true, Ordering::Release);
        left.release();
        recorder.collect_records(&mut writer);
        let commit = writer.commit(Duration::ZERO);
        recorder.note_commit(&mut writer, commit);
        let table = lock(&state.table);
        assert!(table.get(kept.index()).is_some());
        assert!(table.get(left.index()).is_none());
    }
}
