//! Space for the ends of streams while nothing else can be written.
//!
//! The reserve is a file of zeros. When the disk is full the file becomes a segment: the name changes, and frames
//! are written over the zeros, which needs no new block.

use crate::durability::Impairment;
use crate::file_system::{FileSystem, JournalFile, write_fully};
use crate::journal_config::JournalConfig;
use crate::record::{REWRITTEN, Record, kind};
use crate::record_encoding::{RawRecord, RecordDecoder};
use crate::writer::Writer;
use std::io;
use std::sync::Arc;

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
