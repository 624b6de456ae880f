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
use super::stream_logs::{StreamLogs, WrittenChoice};
use super::stream_news::StreamNews;
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
    shown: Shown,
}

enum Shown {
    /// Tokens of a choice before this index.
    Tokens {
        logs: Arc<StreamLogs>,
        choice: usize,
        tokens: u64,
    },
    /// The end of a choice.
    End {
        logs: Arc<StreamLogs>,
        choice: usize,
    },
    /// The first changes of the handle.
    Changes { slot: Arc<StreamSlot>, changes: u64 },
}

/// Whatever may change which streams are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenState {
    durability: Durability,
    gaps: usize,
    rewritten: u64,
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
        let logs = inbox.logs.clone();
        let has_changes = inbox.changes > recorded.changes;
        let mut appended = Ok(());
        if has_changes {
            let news = std::mem::take(&mut inbox.news);
            let (is_forgotten, is_open) = (inbox.is_forgotten, inbox.is_open);
            recorded.changes = inbox.changes;
            drop(inbox);
            if is_open {
                slot.set_durable(false);
            }
            if is_open || is_forgotten {
                self.forget_stream(writer, slot, &mut recorded);
                return;
            }
            appended = self.record_changes(writer, slot, &mut recorded, news);
        } else {
            drop(inbox);
        }
        if let (Ok(()), Some(key)) = (&appended, recorded.key) {
            appended = self.record_logs(writer, slot, &mut recorded, (key, logs));
        }
        if let Err(error) = appended {
            tracing::warn!(%error, "a stream is not recorded");
            self.forget_stream(writer, slot, &mut recorded);
            slot.open_gates();
        }
    }

    fn record_changes<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        slot: &Arc<StreamSlot>,
        recorded: &mut RecordedStream,
        news: StreamNews,
    ) -> Result<(), AppendError> {
        let is_new = recorded.key.is_none();
        recorded.append_news(writer, slot.id, news)?;
        if let Some(key) = recorded.key.filter(|_| is_new) {
            self.slots.insert(key, Arc::clone(slot));
        }
        self.push_pending(Shown::Changes {
            slot: Arc::clone(slot),
            changes: recorded.changes,
        });
        Ok(())
    }

    /// Appends what the logs have beyond the recorded tokens.
    fn record_logs<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        slot: &Arc<StreamSlot>,
        recorded: &mut RecordedStream,
        (key, logs): (StreamKey, Option<Arc<StreamLogs>>),
    ) -> Result<(), AppendError> {
        let Some(logs) = logs else {
            return match recorded.has_control_news(0) {
                true => recorded.append_control(writer, key, 0),
                false => Ok(()),
            };
        };
        recorded.recovered = None;
        let is_steered = recorded.is_steered();
        let applied = is_steered.then(|| (logs.updates_applied(), logs.applied_count()));
        logs.read_written(&mut self.written);
        if applied.is_some_and(|(_, count)| logs.begun_count() != count) {
            slot.note_news();
            return Ok(());
        }
        recorded.append_start(writer, key, &logs)?;
        let applied = applied.map(|(applied, _)| applied);
        let applied = applied.filter(|applied| recorded.has_control_news(*applied));
        if applied.is_some() {
            writer.keep_together(CONTROL_FRAME_BYTES);
        }
        if recorded.choices.len() < self.written.len() {
            let none = RecordedChoice::default();
            recorded.choices.resize(self.written.len(), none);
        }
        for choice in 0..self.written.len() {
            self.record_choice(writer, recorded, &logs, (key, choice))?;
        }
        match applied {
            Some(applied) => recorded.append_control(writer, key, applied),
            None => Ok(()),
        }
    }

    fn record_choice<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        recorded: &mut RecordedStream,
        logs: &Arc<StreamLogs>,
        (key, choice): (StreamKey, usize),
    ) -> Result<(), AppendError> {
        let written = self.written[choice];
        let from = recorded.choices[choice].tokens;
        let mut at = from;
        while at < written.tokens {
            logs.copy_tokens(choice, at, written.tokens, &mut self.buffers);
            if self.buffers.len() == 0 {
                break;
            }
            // The format's bound on choices is below 2^32.
            let tokens = self.buffers.as_record(choice as u32, at);
            writer.append(key, &Record::Tokens(tokens))?;
            at += self.buffers.len() as u64;
        }
        recorded.choices[choice].tokens = at;
        let is_open = recorded.choices[choice].end.is_none();
        let end = written.end.filter(|end| is_open && self.is_final(*end));
        let logs = Arc::clone(logs);
        if let Some(end) = end {
            recorded.append_end(writer, key, choice, end)?;
            self.push_pending(Shown::End { logs, choice });
        } else if at > from {
            let tokens = at;
            self.push_pending(Shown::Tokens {
                logs,
                choice,
                tokens,
            });
        }
        Ok(())
    }

    /// An end by the shutdown is none: the stream continues in the next process.
    fn is_final(&self, end: End) -> bool {
        end != End::Failed(FailCode::Shutdown) || !self.state.is(|state| &state.is_shutting_down)
    }

    fn push_pending(&mut self, shown: Shown) {
        let commit = THIS_TURN;
        self.pending.push_back(PendingShow { commit, shown });
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
        let is_acknowledged = |show: &mut PendingShow| show.commit <= acknowledged;
        while let Some(show) = self.pending.pop_front_if(is_acknowledged) {
            match show.shown {
                Shown::Tokens {
                    logs,
                    choice,
                    tokens,
                } => logs.show_tokens(choice, tokens),
                Shown::End { logs, choice } => logs.show_end(choice),
                Shown::Changes { slot, changes } => slot.acknowledge(changes),
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
        let is_new = |show: &&PendingShow| show.commit == THIS_TURN;
        for show in self.pending.iter().rev().take_while(is_new) {
            if let Shown::Changes { slot, .. } = &show.shown
                && !slot.is_durable()
            {
                let key = lock(&slot.recorded).key;
                slot.set_durable(key.is_some_and(|key| writer.is_durable(key)));
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
