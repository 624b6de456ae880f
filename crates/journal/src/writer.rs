//! The writer: one thread's state machine, driven by the caller; its errors and counts.

use crate::durability::{Durability, Health, SyncState};
use crate::file_system::FileSystem;
use crate::frame::Batch;
use crate::journal_config::JournalConfig;
use crate::record::{Open, Record, TOKENS_PER_RECORD_MAX};
use crate::record_encoding::RecordError;
use crate::remote_records::RecordTap;
use crate::rewrite_cycle::RewriteCycle;
use crate::segment::SegmentList;
use crate::stream_table::{LiveStream, StreamKey, StreamTable};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Appends records of streams to the segments of one process.
pub struct Writer<F: FileSystem> {
    pub(crate) fs: Arc<F>,
    pub(crate) config: JournalConfig,
    pub(crate) boot: u64,
    pub(crate) streams: StreamTable,
    pub(crate) next_handle: u64,
    /// Bytes of the records of all live streams.
    pub(crate) live_bytes: u64,
    /// Live streams with missing records.
    pub(crate) gaps: usize,
    /// Live streams of which only a stored response is left.
    pub(crate) kept: usize,
    /// Streams that were forgotten for space.
    pub(crate) released: Vec<StreamKey>,
    /// Whether a stream was forgotten or rewritten since dead segments were looked for.
    pub(crate) may_have_dead_segments: bool,
    pub(crate) segments: SegmentList,
    pub(crate) current: Option<CurrentSegment<F>>,
    /// The file of the reserve.
    pub(crate) reserve: Option<Arc<F::File>>,
    pub(crate) batch: Batch,
    pub(crate) next_frame: u64,
    /// Number of the frame with the last copy of a stream: streams are rewritten again after a sync that covers the frame.
    pub(crate) rewritten_at: u64,
    /// Whether a live stream may have a version that was replaced and is still needed.
    pub(crate) has_replaced: bool,
    pub(crate) sync: SyncState<F>,
    pub(crate) health: Health,
    pub(crate) cycle: Option<RewriteCycle>,
    /// Streams with records in segments below this number are to be rewritten when writing is resumed.
    pub(crate) resume_below: u64,
    pub(crate) now: Duration,
    pub(crate) commits: u64,
    pub(crate) acknowledged: u64,
    pub(crate) counts: WriterCounts,
    /// Receives what is appended.
    pub(crate) tap: Option<Box<dyn RecordTap>>,
    pub(crate) _lock: F::Lock,
}

/// The file that is written.
#[derive(Debug)]
pub(crate) struct CurrentSegment<F: FileSystem> {
    pub(crate) file: Arc<F::File>,
    /// Place of the next frame.
    pub(crate) offset: u64,
    /// Whether the file was the reserve.
    pub(crate) is_reserve: bool,
}

impl<F: FileSystem> Writer<F> {
    /// Begins a stream.
    ///
    /// # Errors
    /// The description is too large, or there are too many streams.
    pub fn open_stream(&mut self, id: u128, description: &[u8]) -> Result<StreamKey, AppendError> {
        let key = self.open_local_stream(id, description)?;
        if let Some(tap) = &mut self.tap {
            tap.open_stream(key, id, description);
        }
        Ok(key)
    }

    /// Begins a stream that the tap does not receive.
    ///
    /// # Errors
    /// As for [`open_stream`](Self::open_stream).
    pub fn open_local_stream(
        &mut self,
        id: u128,
        description: &[u8],
    ) -> Result<StreamKey, AppendError> {
        if self.streams.len() >= self.config.streams_max {
            return Err(AppendError::TooManyStreams);
        }
        let mut stream = LiveStream::new(id, self.take_handle());
        let within_limit =
            self.live_bytes + (description.len() as u64) < self.config.live_bytes_max();
        if self.health.is_writing() && within_limit {
            let address = stream.take_address();
            let open = Record::Open(Open::new(id, description));
            stream.bytes = self.batch.push(address, &open)?;
            stream.base = Some(self.newest_segment());
            stream.batch = self.batch.number;
            stream.opened_in = self.batch.number;
            stream.may_be_written = true;
            self.live_bytes += stream.bytes;
        } else {
            stream.has_gap = true;
            self.gaps += 1;
        }
        let key = self.streams.insert(stream);
        self.flush_full_batch();
        Ok(key)
    }

    /// Appends a record of a stream. Tokens may be more than one record holds. A record that cannot be written, because
    /// the journal is not durable, is dropped without an error.
    ///
    /// # Errors
    /// The key or the record is not valid; nothing was appended of a record, and perhaps some of long runs of tokens.
    pub fn append(&mut self, key: StreamKey, record: &Record<'_>) -> Result<(), AppendError> {
        match record {
            Record::Open(_) | Record::Forgotten { .. } | Record::Gap | Record::Seal => {
                Err(AppendError::ReservedKind)
            }
            _ if self.tap.is_some() => self.append_tapped(key, record),
            record => self.append_runs(key, record),
        }
    }

    fn append_tapped(&mut self, key: StreamKey, record: &Record<'_>) -> Result<(), AppendError> {
        let stream = self.streams.get(key).ok_or(AppendError::UnknownStream)?;
        if let Some(tap) = &mut self.tap {
            tap.append(stream.id, record);
        }
        self.append_runs(key, record)
    }

    fn append_runs(&mut self, key: StreamKey, record: &Record<'_>) -> Result<(), AppendError> {
        match record {
            Record::Tokens(tokens) if tokens.ids.len() > TOKENS_PER_RECORD_MAX => tokens
                .split_runs()
                .try_for_each(|run| self.append_record(key, &Record::Tokens(run))),
            record => self.append_record(key, record),
        }
    }

    fn append_record(&mut self, key: StreamKey, record: &Record<'_>) -> Result<(), AppendError> {
        let stream = self.streams.get_mut(key);
        let stream = stream.ok_or(AppendError::UnknownStream)?;
        let is_end = matches!(record, Record::Ended { .. });
        let is_whole = self.health.is_writing() && !stream.has_gap;
        if is_whole || (is_end && stream.base.is_some()) {
            let bytes = self.batch.push(stream.address(), record)?;
            stream.next_sequence += 1;
            stream.bytes += bytes;
            stream.batch = self.batch.number;
            self.live_bytes += bytes;
            if matches!(record, Record::Kept { .. }) && !stream.is_kept {
                stream.is_kept = true;
                self.kept += 1;
            }
        } else if !stream.has_gap {
            stream.has_gap = true;
            self.gaps += 1;
            self.mark_gap(key);
        }
        self.flush_full_batch();
        Ok(())
    }

    /// Ends the retention of a stream: the records are not needed any more, and the key becomes invalid.
    ///
    /// # Errors
    /// No live stream has the key.
    pub fn forget_stream(&mut self, key: StreamKey, why: u32) -> Result<(), AppendError> {
        let stream = self.streams.remove(key).ok_or(AppendError::UnknownStream)?;
        if let Some(tap) = &mut self.tap {
            tap.forget_stream(stream.id);
        }
        self.live_bytes -= stream.bytes;
        self.gaps -= usize::from(stream.has_gap);
        self.kept -= usize::from(stream.is_kept);
        self.may_have_dead_segments = true;
        self.health.retry_soon(self.now);
        if stream.may_be_written {
            let why = why.max(crate::REWRITTEN + 1);
            let pushed = self
                .batch
                .push(stream.address(), &Record::Forgotten { why, copy: 0 });
            debug_assert!(pushed.is_ok(), "the record has no part with a bound");
        }
        self.flush_full_batch();
        Ok(())
    }

    /// Records that tokens of this stream are missing from here on.
    pub(crate) fn mark_gap(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        if stream.base.is_none() || stream.gap_is_marked {
            return;
        }
        stream.gap_is_marked = true;
        let address = stream.take_address();
        stream.batch = self.batch.number;
        let pushed = self.batch.push(address, &Record::Gap);
        debug_assert!(pushed.is_ok(), "the record has no part with a bound");
        // A dropped record has a number, so that a later one shows the hole.
        stream.next_sequence += 1;
    }

    /// Begins another frame if the present one has no place for so many bytes, so that the next records of that size are
    /// written together or not at all.
    pub fn keep_together(&mut self, bytes: usize) {
        if self.batch.byte_length() + bytes as u64 > crate::BATCH_BYTES_MAX as u64 {
            self.flush_batch();
        }
    }

    fn flush_full_batch(&mut self) {
        if self.batch.is_full() {
            self.flush_batch();
        }
    }

    pub(crate) fn take_handle(&mut self) -> u64 {
        let handle = self.next_handle;
        self.next_handle = handle.saturating_add(1);
        handle
    }

    /// Number of the segment that contains the next frame, or of one before.
    pub(crate) fn newest_segment(&self) -> u64 {
        match (&self.current, self.segments.newest()) {
            (Some(_), Some(name)) => name.number,
            _ => self.segments.next_number,
        }
    }

    /// Whether the journal has all records of the stream that were appended and committed.
    pub fn is_durable(&self, key: StreamKey) -> bool {
        let has_all = self.streams.get(key).is_some_and(|stream| !stream.has_gap);
        has_all && self.durability() == Durability::Durable
    }

    /// Whether records reach the disk.
    pub fn durability(&self) -> Durability {
        self.health.durability
    }

    /// Commits up to this number may be emitted to clients: they were written, or synced where the sync interval is
    /// zero. Commits of a journal that is not durable are acknowledged at once.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Streams with a stored response that were forgotten for space since the last call.
    pub fn take_released(&mut self) -> Vec<StreamKey> {
        std::mem::take(&mut self.released)
    }

    /// Sets what receives everything that is appended from now on. Streams that were recovered before are not passed on.
    pub fn set_tap(&mut self, tap: Box<dyn RecordTap>) {
        self.tap = Some(tap);
    }

    /// The tap, for copies from memory.
    pub fn tap_mut(&mut self) -> Option<&mut (dyn RecordTap + 'static)> {
        self.tap.as_deref_mut()
    }

    /// Most bytes of live streams.
    pub fn live_bytes_max(&self) -> u64 {
        self.config.live_bytes_max()
    }

    /// Number of this process.
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// Counts since the start.
    pub fn counts(&self) -> WriterCounts {
        self.counts
    }

    /// Present sizes.
    pub fn sizes(&self) -> WriterSizes {
        WriterSizes {
            segments: self.segments.len(),
            bytes: self.segments.bytes(),
            live_bytes: self.live_bytes,
            streams: self.streams.len(),
            gaps: self.gaps,
        }
    }
}

impl<F: FileSystem> fmt::Debug for Writer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("boot", &self.boot)
            .field("durability", &self.durability())
            .field("sizes", &self.sizes())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// A record that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No live stream has the key.
    #[error("no live stream of the journal has this key")]
    UnknownStream,
    /// The bound of live streams is reached.
    #[error("the journal has as many streams as it may have")]
    TooManyStreams,
    /// The kind is written by the writer itself.
    #[error("records of this kind are written by the journal")]
    ReservedKind,
    /// The record is beyond a bound of the format.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterCounts {
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Frames written since the start.
    pub frames: u64,
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Writes, syncs and removals that failed.
    pub errors: u64,
    /// Batches that were dropped.
    pub dropped_batches: u64,
    /// Streams that were rewritten.
    pub rewritten_streams: u64,
}

/// Present sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterSizes {
    /// Segments on the disk.
    pub segments: usize,
    /// Their bytes, without the reserve.
    pub bytes: u64,
    /// Bytes of live streams' records.
    pub live_bytes: u64,
    /// Live streams.
    pub streams: usize,
    /// Live streams with missing records.
    pub gaps: usize,
}
