//! Writing one live stream once more.
//!
//! A copy has a handle of its own and names the one that it replaces. The last record of the copy is the end of the
//! original, in the same or a later frame, with the copy's handle: without that record a recovery uses the original.

use crate::file_system::FileSystem;
use crate::record::{Open, REWRITTEN, Record};
use crate::record_encoding::{RecordAddress, RecordError};
use crate::stream_table::StreamKey;
use crate::writer::{AppendError, Writer};

/// A copy of one stream while the records are written.
#[derive(Debug)]
pub struct StreamCopy<'w, F: FileSystem> {
    writer: &'w mut Writer<F>,
    key: StreamKey,
    next: RecordAddress,
    bytes: u64,
    is_kept: bool,
    /// Batches that were dropped before the copy began.
    dropped_before: u64,
}

impl<F: FileSystem> StreamCopy<'_, F> {
    /// Appends a record of the present state: owner, start, prompts, sampling parameters and pause before the tokens, so that a
    /// prefix of the copy is a prefix of the stream; ends and the stored response after them.
    ///
    /// # Errors
    /// The record is not valid.
    pub fn append(&mut self, record: &Record<'_>) -> Result<(), AppendError> {
        match record {
            Record::Open(_) | Record::Forgotten { .. } | Record::Gap | Record::Seal => {
                Err(AppendError::ReservedKind)
            }
            Record::Tokens(tokens) => tokens
                .split_runs()
                .try_for_each(|run| Ok(self.push(&Record::Tokens(run))?)),
            Record::Kept { .. } => {
                self.is_kept = true;
                Ok(self.push(record)?)
            }
            record => Ok(self.push(record)?),
        }
    }

    /// Whether a part of the copy was dropped, so that the rest is not needed.
    fn has_failed(&self) -> bool {
        self.writer.counts.dropped_batches != self.dropped_before
            || !self.writer.health.is_writing()
    }

    pub(crate) fn push(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        if self.has_failed() {
            return Ok(());
        }
        self.bytes += self.writer.batch.push(self.next, record)?;
        self.next.sequence += 1;
        if self.writer.batch.is_full() {
            self.writer.flush_batch();
        }
        Ok(())
    }
}

impl<F: FileSystem> Writer<F> {
    /// Writes a stream once more: the description, and the records that `write` appends. Where a write fails the
    /// original stays in use.
    ///
    /// # Errors
    /// The key or the description is not valid.
    pub fn rewrite_stream(
        &mut self,
        key: StreamKey,
        description: &[u8],
        write: impl FnOnce(&mut StreamCopy<'_, F>),
    ) -> Result<(), AppendError> {
        let id = self.streams.get(key).ok_or(AppendError::UnknownStream)?.id;
        self.copy_stream(key, Open::new(id, description), write)
    }

    pub(crate) fn copy_stream(
        &mut self,
        key: StreamKey,
        open: Open<'_>,
        write: impl FnOnce(&mut StreamCopy<'_, F>),
    ) -> Result<(), AppendError> {
        // A copy that is dropped leaves the state as if the stream had not been rewritten.
        self.flush_batch();
        if !self.health.is_writing() {
            return Ok(());
        }
        let Some(replaces) = self.original_of(key) else {
            return Ok(()); // Given up for the space that the records before needed.
        };
        let dropped_before = self.counts.dropped_batches;
        let base = self.newest_segment();
        let handle = self.take_handle();
        let mut copy = StreamCopy {
            next: RecordAddress {
                handle,
                sequence: 0,
            },
            writer: self,
            key,
            bytes: 0,
            is_kept: false,
            dropped_before,
        };
        copy.push(&Record::Open(Open { replaces, ..open }))?;
        write(&mut copy);
        let has_failed = copy.has_failed();
        let StreamCopy {
            key,
            next,
            bytes,
            is_kept,
            ..
        } = copy;
        if !has_failed {
            self.end_original(key, next.handle);
            self.flush_batch();
        }
        if self.counts.dropped_batches == dropped_before {
            self.adopt_copy(key, next, bytes, base, is_kept);
        }
        Ok(())
    }

    /// Handle of the version that a copy replaces, also where that one may not be on the disk: a write that was reported
    /// as failed may have reached the disk, and so may a part of a copy that was given up.
    fn original_of(&mut self, key: StreamKey) -> Option<u64> {
        let stream = self.streams.get_mut(key)?;
        stream.may_be_written = true;
        Some(stream.handle)
    }

    fn end_original(&mut self, key: StreamKey, copy: u64) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let address = stream.take_address();
        stream.batch = self.batch.number;
        let why = REWRITTEN;
        let pushed = self.batch.push(address, &Record::Forgotten { why, copy });
        debug_assert!(pushed.is_ok(), "the record has no part with a bound");
    }

    fn adopt_copy(
        &mut self,
        key: StreamKey,
        next: RecordAddress,
        bytes: u64,
        base: u64,
        is_kept: bool,
    ) {
        self.rewritten_at = self.next_frame;
        self.has_replaced = true;
        self.may_have_dead_segments = true;
        self.counts.rewritten_streams += 1;
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        self.live_bytes = self.live_bytes - stream.bytes + bytes;
        self.gaps -= usize::from(stream.has_gap);
        self.kept = self.kept - usize::from(stream.is_kept) + usize::from(is_kept);
        stream.replaced_base = stream.needed_from();
        stream.copied_before = self.next_frame;
        stream.handle = next.handle;
        stream.next_sequence = next.sequence;
        stream.bytes = bytes;
        stream.base = Some(base);
        stream.has_gap = false;
        stream.gap_is_marked = false;
        stream.is_kept = is_kept;
    }
}
