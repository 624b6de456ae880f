//! The journal's caller on the thread `journal`: what the streams have written goes into the journal, and what the
//! journal has acknowledged is shown.
//!
//! A turn takes the list of streams with news. For each of them, in this order: the changes of the handle; the tokens of
//! each choice behind the recorded ones, and the ends; the control state without the updates that are in these tokens.
//! After the commit, and after each sync, what acknowledged commits contain is shown to the readers.
//!
//! The counters of applied control updates are read around the lengths: first how many are applied, then the lengths,
//! then how many were begun. If one more was begun, its injected tokens may be below the lengths or not, and the stream
//! waits for the next turn. So the journal never has injected tokens beside an update that is still to be applied.

use super::journal_metrics::JournalGauges;
use super::journal_state::{JournalState, lock};
use super::recorded_stream::{RecordedChoice, RecordedStream};
use super::stream_logs::WrittenChoice;
use super::stream_slot::StreamSlot;
use super::token_buffers::TokenBuffers;
use journal::{AppendError, Durability, FileSystem, Record, Recorder, StreamKey, Writer};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stream::{End, FailCode};

/// Reason of `Forgotten`: the retention of the stream is over, or the stream was given up.
pub(crate) const NOT_RETAINED: u32 = 1;

/// Bytes of records that are written together where control updates were applied: more than the tokens of a step.
const CONTROL_FRAME_BYTES: usize = 64 << 10;

/// Records what streams write.
pub(crate) struct StreamRecorder {
    state: Arc<JournalState>,
    /// Streams in the journal.
    slots: HashMap<StreamKey, Arc<StreamSlot>>,
    /// Streams with news in this turn.
    news: Vec<Arc<StreamSlot>>,
    /// What is shown once a commit is acknowledged, in the order of commits.
    pending: VecDeque<PendingShow>,
    written: Vec<WrittenChoice>,
    buffers: TokenBuffers,
    /// State of the journal when the streams' flags were set last.
    seen: SeenState,
}

/// Commit of a record that was appended in this turn.
const THIS_TURN: u64 = u64::MAX;

/// Something to be shown.
struct PendingShow {
    /// Number of the commit that contains the record.
    commit: u64,
    slot: Arc<StreamSlot>,
    shown: Shown,
}

enum Shown {
    /// Tokens of a choice before this index.
    Tokens { choice: usize, tokens: u64 },
    /// The end of a choice.
    End { choice: usize },
    /// The first changes of the handle.
    Changes(u64),
}

/// Whatever may change which streams are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenState {
    durability: Durability,
    gaps: usize,
    rewritten: u64,
}

/// One stream of a turn.
struct StreamTurn<'a, F: FileSystem> {
    writer: &'a mut Writer<F>,
    slot: &'a Arc<StreamSlot>,
    recorded: &'a mut RecordedStream,
    key: StreamKey,
}

impl StreamRecorder {
    /// A recorder with the streams that an earlier process has left.
    pub(crate) fn new(
        state: Arc<JournalState>,
        adopted: impl Iterator<Item = (StreamKey, Arc<StreamSlot>)>,
    ) -> Self {
        Self {
            state,
            slots: adopted.collect(),
            news: Vec::new(),
            pending: VecDeque::new(),
            written: Vec::new(),
            buffers: TokenBuffers::new(),
            seen: SeenState {
                durability: Durability::Durable,
                gaps: 0,
                rewritten: 0,
            },
        }
    }

    fn record_stream<F: FileSystem>(&mut self, writer: &mut Writer<F>, slot: &Arc<StreamSlot>) {
        slot.clear_news();
        let mut recorded = lock(&slot.recorded);
        let mut inbox = lock(&slot.inbox);
        let news = std::mem::take(&mut inbox.news);
        let (changes, is_forgotten, is_open) = (inbox.changes, inbox.is_forgotten, inbox.is_open);
        if inbox.logs.is_some() {
            recorded.recovered = None;
        }
        drop(inbox);
        if is_forgotten || is_open {
            self.forget_stream(writer, slot, &mut recorded);
            return;
        }
        let is_new = recorded.key.is_none();
        let mut appended = recorded.append_news(writer, slot.id, news);
        if let Some(key) = recorded.key {
            if is_new {
                self.slots.insert(key, Arc::clone(slot));
            }
            if appended.is_ok() {
                let recorded = &mut recorded;
                appended = self.record_logs(StreamTurn {
                    writer,
                    slot,
                    recorded,
                    key,
                });
            }
        }
        match appended {
            Ok(()) if changes > recorded.changes => {
                recorded.changes = changes;
                self.push_pending(slot, Shown::Changes(changes));
            }
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "a stream is not recorded");
                self.forget_stream(writer, slot, &mut recorded);
                slot.open_gates();
            }
        }
    }

    /// Appends what the logs have beyond the recorded tokens.
    fn record_logs<F: FileSystem>(&mut self, turn: StreamTurn<'_, F>) -> Result<(), AppendError> {
        let StreamTurn {
            writer,
            slot,
            recorded,
            key,
        } = turn;
        let inbox = lock(&slot.inbox);
        let Some(logs) = &inbox.logs else {
            drop(inbox);
            return recorded.append_control(writer, key, 0);
        };
        let (applied, applied_count) = (logs.updates_applied(), logs.applied_count());
        logs.read_written(&mut self.written);
        if logs.begun_count() != applied_count {
            drop(inbox);
            slot.note_news();
            return Ok(());
        }
        recorded.append_start(writer, key, logs)?;
        drop(inbox);
        let has_control_news = recorded.has_control_news(applied);
        if has_control_news {
            writer.keep_together(CONTROL_FRAME_BYTES);
        }
        if recorded.choices.len() < self.written.len() {
            let none = RecordedChoice::default();
            recorded.choices.resize(self.written.len(), none);
        }
        for choice in 0..self.written.len() {
            let written = self.written[choice];
            self.record_choice(writer, slot, recorded, (key, choice, written))?;
        }
        if has_control_news {
            recorded.append_control(writer, key, applied)?;
        }
        Ok(())
    }

    fn record_choice<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        slot: &Arc<StreamSlot>,
        recorded: &mut RecordedStream,
        (key, choice, written): (StreamKey, usize, WrittenChoice),
    ) -> Result<(), AppendError> {
        let from = recorded.choices[choice].tokens;
        let mut at = from;
        while at < written.tokens {
            self.copy_tokens(slot, choice, at, written.tokens);
            if self.buffers.len() == 0 {
                break; // The handle was dropped meanwhile.
            }
            // The format's bound on choices is below 2^32.
            let tokens = self.buffers.as_record(choice as u32, at);
            writer.append(key, &Record::Tokens(tokens))?;
            at += self.buffers.len() as u64;
        }
        recorded.choices[choice].tokens = at;
        let is_complete = at == written.tokens && recorded.choices[choice].end.is_none();
        let end = written.end.filter(|end| is_complete && self.is_final(*end));
        if let Some(end) = end {
            recorded.append_end(writer, key, choice, end)?;
            self.push_pending(slot, Shown::End { choice });
        } else if at > from {
            self.push_pending(slot, Shown::Tokens { choice, tokens: at });
        }
        Ok(())
    }

    fn copy_tokens(&mut self, slot: &StreamSlot, choice: usize, from: u64, end: u64) {
        self.buffers.clear();
        if let Some(logs) = &lock(&slot.inbox).logs {
            logs.copy_tokens(choice, from, end, &mut self.buffers);
        }
    }

    /// An end by the shutdown is none: the stream continues in the next process.
    fn is_final(&self, end: End) -> bool {
        end != End::Failed(FailCode::Shutdown) || !self.state.is(|state| &state.is_shutting_down)
    }

    fn push_pending(&mut self, slot: &Arc<StreamSlot>, shown: Shown) {
        self.pending.push_back(PendingShow {
            commit: THIS_TURN,
            slot: Arc::clone(slot),
            shown,
        });
    }

    /// Removes a stream from the journal. Without effect on a stream that was removed before.
    fn forget_stream<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        slot: &StreamSlot,
        recorded: &mut RecordedStream,
    ) {
        if let Some(key) = recorded.key.take() {
            // An unknown key: the stored response was given up for space.
            let _ = writer.forget_stream(key, NOT_RETAINED);
            self.slots.remove(&key);
        }
        *recorded = RecordedStream::default();
        slot.acknowledge(u64::MAX);
    }

    fn show_acknowledged(&mut self, acknowledged: u64) {
        while self
            .pending
            .front()
            .is_some_and(|show| show.commit <= acknowledged)
        {
            let Some(PendingShow { slot, shown, .. }) = self.pending.pop_front() else {
                return;
            };
            if let Shown::Changes(changes) = shown {
                slot.acknowledge(changes);
            } else if let Some(logs) = &lock(&slot.inbox).logs {
                match shown {
                    Shown::Tokens { choice, tokens } => logs.show_tokens(choice, tokens),
                    Shown::End { choice } => logs.show_end(choice),
                    Shown::Changes(_) => {}
                }
            }
        }
    }

    /// Sets the flags of streams that became durable, or ceased to be.
    fn update_durability<F: FileSystem>(&mut self, writer: &mut Writer<F>) {
        for key in writer.take_released() {
            if let Some(slot) = self.slots.remove(&key) {
                lock(&slot.recorded).key = None;
                slot.set_durable(false);
            }
        }
        let seen = SeenState {
            durability: writer.durability(),
            gaps: writer.sizes().gaps,
            rewritten: writer.counts().rewritten_streams,
        };
        if seen != self.seen {
            self.seen = seen;
            for (key, slot) in &self.slots {
                slot.set_durable(writer.is_durable(*key));
            }
        }
    }

    /// A stream whose beginning was appended in this turn is durable from the acknowledgement on.
    fn note_new_streams<F: FileSystem>(&self, writer: &Writer<F>) {
        for show in self
            .pending
            .iter()
            .rev()
            .take_while(|show| show.commit == THIS_TURN)
        {
            if matches!(show.shown, Shown::Changes(_)) && !show.slot.is_durable() {
                let key = lock(&show.slot.recorded).key;
                show.slot
                    .set_durable(key.is_some_and(|key| writer.is_durable(key)));
            }
        }
    }
}

impl<F: FileSystem> Recorder<F> for StreamRecorder {
    fn collect_records(&mut self, writer: &mut Writer<F>) {
        self.state.is_busy.store(true, Ordering::Release);
        self.state.beats.fetch_add(1, Ordering::Release);
        let mut news = std::mem::take(&mut self.news);
        self.state.take_news(&mut news);
        for slot in &news {
            self.record_stream(writer, slot);
        }
        news.clear();
        self.news = news;
    }

    fn note_commit(&mut self, writer: &mut Writer<F>, commit: u64) {
        self.note_new_streams(writer);
        for show in self.pending.iter_mut().rev() {
            if show.commit != THIS_TURN {
                break;
            }
            show.commit = commit;
        }
        self.update_durability(writer);
        self.show_acknowledged(writer.acknowledged());
        let gauges = JournalGauges::of_writer(writer);
        self.state.metrics.set(&gauges);
        self.state.beats.fetch_add(1, Ordering::Release);
        self.state.is_busy.store(false, Ordering::Release);
    }

    fn rewrite_stream(&mut self, writer: &mut Writer<F>, key: StreamKey) {
        if let Some(slot) = self.slots.get(&key).map(Arc::clone) {
            let recorded = lock(&slot.recorded);
            super::rewriting::rewrite_stream(writer, key, &slot, &recorded, &mut self.buffers);
        }
    }
}
