//! Freeing space: dead segments, and stored responses that are given up.
//!
//! Space for the ends of streams while nothing else can be written.
//!
//! The reserve is a file of zeros. When the disk is full the file becomes a segment: the name changes, and frames
//! are written over the zeros, which needs no new block.

use crate::group_commit::Impairment;
use crate::journal_config::JournalConfig;
use crate::journal_directory::{FileSystem, JournalFile, write_fully};
use crate::record::{REWRITTEN, Record, kind};
use crate::record_encoding::{RawRecord, RecordDecoder};
use crate::stream_table::{LiveStream, StreamKey};
use crate::writer::Writer;
use std::io;
use std::sync::Arc;

/// Reason of [`Forgotten`](crate::Record::Forgotten) where a stored response was given up for space.
pub const RELEASED: u32 = u32::MAX;

impl<F: FileSystem> Writer<F> {
    /// Deletes the oldest segments up to the first that a live stream needs. Segments go in order, so that the end of a
    /// stream is never deleted before the stream.
    pub(crate) fn delete_dead_segments(&mut self) {
        if !self.may_have_dead_segments {
            return;
        }
        self.may_have_dead_segments = false;
        let needed = self.first_needed_segment();
        while let Some(oldest) = self.segments.oldest().filter(|name| name.number < needed) {
            if self.fs.remove_file(&oldest.to_string()).is_err() {
                self.counts.errors += 1;
                // The next stream that ends leads to the next attempt.
                return;
            }
            self.segments.pop_oldest();
        }
    }

    fn first_needed_segment(&self) -> u64 {
        let streams = self.streams.streams();
        let needed = streams.map(LiveStream::needed_from).min();
        needed.unwrap_or(u64::MAX).min(self.newest_segment())
    }

    /// Gives up stored responses, oldest first, while the live streams need more than they may.
    pub(crate) fn release_excess(&mut self) {
        let limit = self.config.live_bytes_max();
        if self.live_bytes <= limit || self.kept == 0 {
            return;
        }
        for key in self.kept_streams() {
            if self.live_bytes <= limit {
                break;
            }
            self.release(key);
        }
        self.flush_batch();
    }

    /// Gives up stored responses of the oldest segment where they are all that keeps the segment. Returns whether space
    /// was freed.
    pub(crate) fn release_for_space(&mut self) -> bool {
        let before = self.segments.bytes();
        self.may_have_dead_segments = true;
        self.delete_dead_segments();
        while self.segments.bytes() == before && self.release_oldest_segment() {
            self.may_have_dead_segments = true;
            self.delete_dead_segments();
        }
        self.segments.bytes() < before
    }

    /// Whether the first needed segment was kept by stored responses alone, which are given up.
    fn release_oldest_segment(&mut self) -> bool {
        let needed = self.first_needed_segment();
        let in_segment = |key: &StreamKey| {
            let stream = self.streams.get(*key);
            stream.is_some_and(|stream| stream.needed_from() == needed)
        };
        let keys: Vec<StreamKey> = self.streams.keys().filter(in_segment).collect();
        let is_kept = |key: &StreamKey| self.streams.get(*key).is_some_and(|s| s.is_kept);
        if keys.is_empty() || !keys.iter().all(is_kept) {
            return false;
        }
        for key in keys {
            self.release(key);
        }
        true
    }

    fn kept_streams(&self) -> Vec<StreamKey> {
        let is_kept = |key: &StreamKey| self.streams.get(*key).is_some_and(|s| s.is_kept);
        let mut keys: Vec<StreamKey> = self.streams.keys().filter(is_kept).collect();
        keys.sort_by_key(|key| self.streams.get(*key).map(|stream| stream.handle));
        keys
    }

    /// Forgets the stream without a write of its own: the record goes with the next frame.
    fn release(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.remove(key) else {
            return;
        };
        self.live_bytes -= stream.bytes;
        self.gaps -= usize::from(stream.has_gap);
        self.kept -= usize::from(stream.is_kept);
        self.may_have_dead_segments = true;
        self.released.push(key);
        if stream.may_be_written {
            let (why, copy) = (RELEASED, 0);
            let record = crate::Record::Forgotten { why, copy };
            let pushed = self.batch.push(stream.address(), &record);
            debug_assert!(pushed.is_ok(), "the record has no part with a bound");
        }
    }
}

/// Name of the file.
pub(crate) const RESERVE_NAME: &str = "reserve";

impl<F: FileSystem> Writer<F> {
    /// Creates the reserve, in the blocks of a file that is present.
    pub(crate) fn create_reserve(&mut self) -> io::Result<()> {
        if self.reserve.is_none() {
            let file = prepare_reserve(&*self.fs, &self.config)?;
            self.set_reserve(file);
        }
        Ok(())
    }

    /// Uses a file of zeros as the reserve. The next sync covers the file.
    pub(crate) fn set_reserve(&mut self, file: Option<F::File>) {
        self.reserve = file.map(Arc::new);
        self.sync.full.extend(self.reserve.clone());
    }

    /// Gives the reserve up after a failed sync.
    pub(crate) fn discard_reserve(&mut self) {
        self.reserve = None;
        // Where the removal fails, too, the file is used again.
        let _ = self.fs.remove_file(RESERVE_NAME);
    }

    /// Creates the reserve once the disk works again.
    pub(crate) fn restore_reserve(&mut self) {
        let has_space = self.used_bytes() + self.config.reserve_bytes <= self.config.bytes_max;
        let is_due = has_space && self.health.is_writing() && self.now >= self.health.retry_at;
        if self.reserve.is_none() && is_due && self.create_reserve().is_err() {
            self.counts.errors += 1;
            self.health.postpone(self.now);
        }
    }

    /// Drops the batch but for ends of streams, and marks the gaps.
    pub(crate) fn stop_writing(&mut self, impairment: Impairment) {
        self.counts.dropped_batches += 1;
        self.health.impair(impairment, self.now);
        let interrupted = self.cycle.take();
        self.resume_below = interrupted.map_or(0, |cycle| cycle.below);
        self.note_gaps_of_batch();
        let records = self.batch.take_records();
        self.keep_ends(&records);
        for index in 0..self.streams.capacity() {
            if let Some(key) = self.streams.key_at(index)
                && self.streams.get(key).is_some_and(|stream| stream.has_gap)
            {
                self.mark_gap(key);
            }
        }
        self.activate_reserve();
        self.write_to_reserve();
    }

    /// The streams with records in the batch lack these records.
    fn note_gaps_of_batch(&mut self) {
        let dropped = self.batch.number;
        for stream in self.streams.streams_mut() {
            if stream.batch == dropped {
                self.gaps += usize::from(!stream.has_gap);
                stream.has_gap = true;
            }
            if stream.opened_in == dropped {
                stream.base = None;
            }
        }
    }

    /// Copies the records of a dropped batch that end a stream.
    fn keep_ends(&mut self, records: &[u8]) {
        let mut decoder = RecordDecoder::default();
        let mut rest = records;
        while let Some(raw) = RawRecord::read(rest) {
            let (record, after) = rest.split_at(raw.bytes);
            rest = after;
            let is_end = match raw.kind {
                kind::ENDED | kind::SEAL => true,
                kind::FORGOTTEN => !matches!(
                    decoder.decode_body(raw),
                    Some(Record::Forgotten { why: REWRITTEN, .. })
                ),
                _ => false,
            };
            if is_end {
                self.batch.push_encoded(record);
            }
        }
    }

    /// The reserve becomes the current segment.
    fn activate_reserve(&mut self) {
        let Some(file) = self.reserve.take() else {
            return;
        };
        self.roll_segment();
        let name = self.next_name();
        let header = self.segment_header();
        let renamed = self.fs.rename_file(RESERVE_NAME, &name.to_string());
        if renamed.is_err() || write_fully(&*file, &header, 0).is_err() {
            self.counts.errors += 1;
        } else {
            self.use_file(file, true);
        }
        if renamed.is_ok() {
            self.segments.push(name, self.config.reserve_bytes);
        }
    }

    /// Writes ends of streams while nothing else is written. Without space they are dropped.
    pub(crate) fn write_to_reserve(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let bytes = self.batch.byte_length();
        let has_space = self.current.as_ref().is_some_and(|current| {
            current.is_reserve && current.offset + bytes <= self.config.reserve_bytes
        });
        if !has_space || self.write_current().is_err() {
            self.note_gaps_of_batch();
            self.batch.clear();
        }
    }

    /// Attempts to write again after an impairment. The streams with gaps are rewritten.
    pub(crate) fn resume_writing(&mut self) {
        self.delete_dead_segments();
        let needed = self.config.segment_bytes_bounded() + self.config.reserve_bytes;
        let has_space = self.used_bytes() + needed <= self.config.bytes_max;
        self.roll_segment();
        let is_created =
            has_space && self.create_reserve().is_ok() && self.create_segment().is_ok();
        if is_created {
            self.health.resume();
            self.begin_cycle(self.resume_below);
        } else {
            self.counts.errors += 1;
            self.health.postpone(self.now);
        }
    }
}

/// Creates the file of zeros, in the blocks of a file that is present; `None` where the reserve has no bytes.
pub(crate) fn prepare_reserve<F: FileSystem>(
    fs: &F,
    config: &JournalConfig,
) -> io::Result<Option<F::File>> {
    let size = config.reserve_bytes;
    if size == 0 {
        return Ok(None);
    }
    let present = fs.open_file(RESERVE_NAME).ok();
    let present = present.filter(|file| file.byte_length().is_ok_and(|bytes| bytes == size));
    // A power loss may undo the renaming but not the frames, so that zeros are written over a present file, too.
    let file = match present {
        Some(file) => file,
        None => fs.create_file(RESERVE_NAME)?,
    };
    let written = write_zeros(&file, size);
    if written.is_err() {
        let _ = fs.remove_file(RESERVE_NAME);
    }
    written?;
    Ok(Some(file))
}

/// Fills a file, so that its blocks exist.
fn write_zeros<T: JournalFile>(file: &T, size: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut offset = 0;
    while offset < size {
        let bytes = (size - offset).min(ZEROS.len() as u64);
        write_fully(file, &ZEROS[..bytes as usize], offset)?;
        offset += bytes;
    }
    Ok(())
}
