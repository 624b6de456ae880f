//! One stream: what is to be sent, what is on the way, and what is stored; and the streams that are next, by time.

use super::replicator::RECORDS_BYTES_MAX;
use super::store::LastMessage;
use crate::messages::{FileDigest, RECORDS_HEAD_BYTES_MAX, RecordsHead};
use crate::names::InstanceId;
use bytes::Bytes;
use journal::{
    Open, REWRITTEN, Record, RecordAddress, RecordError, RecordSource, StreamKey, encode_record,
};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Bits of a handle that count the copies of one owner; the generation is above.
const COPY_BITS: u32 = 20;

/// Sequence of the record that ends a copy's original: above that of any record, so that the end counts whatever of the
/// original was never sent.
const ORIGINAL_END: u64 = u32::MAX as u64;

/// Next action for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Batches are sent.
    Following,
    /// The subject's last message is to be read.
    Checking,
    /// The subject's last message is being read.
    CheckSent,
    /// Another instance owns the stream.
    Fenced,
    /// A record is beyond the bounds of the format: the stream is never replicated.
    Refused,
}

/// Whether the files that a stream's records name are stored: they are stored before the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// Stored since this time; or there are none.
    Stored(Option<Instant>),
    /// To be sent. Those that are there may be old: they are removed before (`renews`).
    Wanted { renews: bool },
    /// Being sent.
    Sending,
}

/// A message without an answer.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) payload: Bytes,
    pub(super) is_sent: bool,
    /// Number of the last request with this message.
    pub(super) serial: u64,
    handle: u64,
    /// Bytes of records.
    records: usize,
}

/// A copy that is not stored in full.
#[derive(Clone, Copy, Debug)]
struct Copying {
    /// Sequence of the first message; 0 before.
    first_sequence: u64,
    /// Bytes that are not in a stored message.
    left: usize,
}

#[derive(Debug)]
pub(super) struct ReplicatedStream {
    /// The stream in the journal; `None` before the journal has it.
    pub(super) key: Option<StreamKey>,
    /// Hash of the API key whose stream it is.
    pub(super) api_key: u64,
    pub(super) state: NextAction,
    pub(super) generation: u64,
    /// Address of the next record.
    next: RecordAddress,
    copies: u64,
    /// Handle of the last stored record, which the next copy replaces; 0: nothing is stored.
    pub(super) stored_handle: u64,
    /// Sequence of the subject's last message.
    pub(super) last_sequence: u64,
    /// Number of the last message that is stored.
    pub(super) stored: u64,
    pub(super) pending: Vec<u8>,
    pub(super) flight: Option<Flight>,
    copying: Option<Copying>,
    /// Whether the stream is to be written once more from memory; records are not taken until then.
    pub(super) needs_copy: bool,
    pub(super) is_forgotten: bool,
    pub(super) due: Option<Instant>,
    pub(super) sent_at: Option<Instant>,
    /// Since when there are records that are not stored.
    pub(super) behind_since: Option<Instant>,
    pub(super) copied_at: Instant,
    /// Messages since the last copy.
    pub(super) messages: u64,
    pub(super) copy_bytes: u64,
    pub(super) bytes_since: u64,
    /// Files that the records name.
    pub(super) files: Vec<FileDigest>,
    pub(super) file_state: FileState,
}

impl ReplicatedStream {
    pub(super) fn new(generation: u64, now: Instant) -> Self {
        Self {
            key: None,
            api_key: 0,
            state: NextAction::Following,
            generation,
            next: RecordAddress {
                handle: generation << COPY_BITS,
                sequence: 0,
            },
            copies: 0,
            stored_handle: 0,
            last_sequence: 0,
            stored: 0,
            pending: Vec::new(),
            flight: None,
            copying: None,
            needs_copy: false,
            is_forgotten: false,
            due: None,
            sent_at: None,
            behind_since: None,
            copied_at: now,
            messages: 0,
            copy_bytes: 0,
            bytes_since: 0,
            files: Vec::new(),
            file_state: FileState::Stored(None),
        }
    }

    /// Takes the names of the files in a description. They are sent where they are not stored, or would soon be too old.
    pub(super) fn set_files(&mut self, files: Vec<FileDigest>, age_max: Duration, now: Instant) {
        self.files = files;
        self.file_state = match self.file_state {
            _ if self.files.is_empty() => FileState::Stored(None),
            FileState::Stored(None) => FileState::Wanted { renews: false },
            FileState::Stored(Some(at)) if now.saturating_duration_since(at) > age_max / 2 => {
                FileState::Wanted { renews: true }
            }
            state => state,
        };
    }

    /// The store may have lost files.
    pub(super) fn lose_files(&mut self) {
        if let FileState::Stored(Some(_)) = self.file_state {
            self.file_state = FileState::Wanted { renews: false };
        }
    }

    /// Whether records are taken.
    pub(super) fn takes_records(&self) -> bool {
        let is_live = !matches!(self.state, NextAction::Fenced | NextAction::Refused);
        is_live && !self.needs_copy && !self.is_forgotten
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.pending.len()
            + self
                .flight
                .as_ref()
                .map_or(0, |flight| flight.payload.len())
    }

    pub(super) fn push(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        match record {
            Record::Tokens(tokens) => tokens
                .split_runs()
                .try_for_each(|run| self.push_one(&Record::Tokens(run))),
            record => self.push_one(record),
        }
    }

    fn push_one(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        encode_record(&mut self.pending, self.next, record)?;
        self.next.sequence += 1;
        Ok(())
    }

    /// Writes the stream once more: the records that are not sent are dropped.
    pub(super) fn copy(
        &mut self,
        open: Open<'_>,
        write: RecordSource<'_>,
        now: Instant,
    ) -> Result<(), RecordError> {
        debug_assert!(self.flight.is_none(), "the last message was answered");
        self.copies += 1;
        let replaces = self.stored_handle;
        self.next = RecordAddress {
            handle: (self.generation << COPY_BITS) + self.copies,
            sequence: 0,
        };
        self.pending = Vec::new();
        self.push_one(&Record::Open(Open { replaces, ..open }))?;
        let mut result = Ok(());
        write(&mut |record| {
            if result.is_ok() {
                result = self.push(record);
            }
        });
        result?;
        if replaces != 0 {
            let original = RecordAddress {
                handle: replaces,
                sequence: ORIGINAL_END,
            };
            let (why, copy) = (REWRITTEN, self.next.handle);
            encode_record(
                &mut self.pending,
                original,
                &Record::Forgotten { why, copy },
            )?;
        }
        self.copying = Some(Copying {
            first_sequence: 0,
            left: self.pending.len(),
        });
        self.needs_copy = false;
        self.copied_at = now;
        self.messages = 0;
        self.copy_bytes = self.pending.len() as u64;
        self.bytes_since = 0;
        Ok(())
    }

    /// Drops what is not stored; the stream is to be written once more.
    pub(super) fn drop_pending(&mut self) {
        self.pending = Vec::new();
        self.needs_copy = true;
        self.copying = None;
    }

    /// The next message: the beginning of the pending records.
    pub(super) fn begin_flight(&mut self, instance: InstanceId, now: Instant) {
        let records = self.pending.len().min(RECORDS_BYTES_MAX);
        let mut payload = Vec::with_capacity(RECORDS_HEAD_BYTES_MAX + records);
        let head = RecordsHead {
            generation: self.generation,
            instance,
            number: self.stored + 1,
            handle: self.next.handle,
            key: self.api_key,
        };
        head.encode_into(&mut payload);
        payload.extend(self.pending.drain(..records));
        self.flight = Some(Flight {
            payload: payload.into(),
            is_sent: false,
            serial: 0,
            handle: head.handle,
            records,
        });
        self.sent_at = Some(now);
    }

    /// The message on the way is stored. Returns the first sequence of a copy that is stored in full with it.
    pub(super) fn take_stored(&mut self, sequence: u64) -> Option<u64> {
        let flight = self.flight.take()?;
        self.last_sequence = sequence;
        self.stored += 1;
        self.stored_handle = flight.handle;
        self.messages += 1;
        self.bytes_since += flight.records as u64;
        let copying = self.copying.as_mut()?;
        if copying.first_sequence == 0 {
            copying.first_sequence = sequence;
        }
        copying.left = copying.left.saturating_sub(flight.records);
        let first = copying.first_sequence;
        if copying.left > 0 {
            return None;
        }
        self.copying = None;
        Some(first)
    }

    /// The store has lost messages, or has those of an earlier owner.
    pub(super) fn take_regress(&mut self, last: Option<LastMessage>) {
        self.lose_files();
        self.flight = None;
        self.copying = None;
        self.pending = Vec::new();
        self.needs_copy = true;
        self.last_sequence = last.map_or(0, |last| last.sequence);
        self.stored_handle = last.map_or(0, |last| last.head.handle);
    }

    /// Whether a copy now shortens what a reader of the subject has to read, or keeps messages from ageing out.
    pub(super) fn has_worn_copy(&self, age_max: Duration, now: Instant) -> bool {
        const MESSAGES: u64 = 256;
        const MESSAGES_MAX: u64 = 4096;
        let is_long = self.messages >= MESSAGES && self.bytes_since >= self.copy_bytes;
        let is_old = now.saturating_duration_since(self.copied_at) > age_max / 2;
        is_long || self.messages >= MESSAGES_MAX || (is_old && self.stored > 0)
    }
}

/// An entry for each stream at most; the stream has the time of its entry.
#[derive(Debug, Default)]
pub(super) struct Schedule(BTreeSet<(Instant, u128)>);

impl Schedule {
    /// Sets the time of a stream; an earlier one stays.
    pub(super) fn set(&mut self, due: &mut Option<Instant>, id: u128, at: Instant) {
        if let Some(before) = *due {
            if before <= at {
                return;
            }
            self.0.remove(&(before, id));
        }
        *due = Some(at);
        self.0.insert((at, id));
    }

    pub(super) fn clear(&mut self, due: &mut Option<Instant>, id: u128) {
        if let Some(before) = due.take() {
            self.0.remove(&(before, id));
        }
    }

    /// The next stream that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u128> {
        let first = self.0.first().copied().filter(|(at, _)| *at <= now)?;
        self.0.remove(&first);
        Some(first.1)
    }

    /// When the next stream is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }
}
