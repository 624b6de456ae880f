//! Space for the ends of streams while nothing else can be written.
//!
//! The reserve is a file of zeros. When the disk is full the file becomes a segment: the name changes, and frames
//! are written over the zeros, which needs no new block.

use crate::durability::Impairment;
use crate::file_system::{FileSystem, JournalFile, write_fully};
use crate::record::{REWRITTEN, Record};
use crate::record_decoder::{RawRecord, RecordDecoder};
use crate::record_kind as kind;
use crate::writer::Writer;
use std::io;
use std::sync::Arc;

/// Name of the file.
pub(crate) const RESERVE_NAME: &str = "reserve";

impl<F: FileSystem> Writer<F> {
    /// Creates the reserve where the file is missing or has another size.
    pub(crate) fn create_reserve(&mut self) -> io::Result<()> {
        if self.has_reserve || self.config.reserve_bytes == 0 {
            return Ok(());
        }
        let size = self.config.reserve_bytes;
        if let Ok(file) = self.fs.open_file(RESERVE_NAME)
            && file.byte_length()? == size
        {
            self.has_reserve = true;
            return Ok(());
        }
        let file = self.fs.create_file(RESERVE_NAME)?;
        let written = write_zeros(&file, size);
        if written.is_err() {
            let _ = self.fs.remove_file(RESERVE_NAME);
        }
        written?;
        self.sync.full.push(Arc::new(file));
        self.has_reserve = true;
        Ok(())
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
                    Some(Record::Forgotten { why: REWRITTEN })
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
        if !self.has_reserve {
            return;
        }
        self.roll_segment();
        let name = self.next_name();
        let header = self.segment_header();
        let renamed = self.fs.rename_file(RESERVE_NAME, &name.to_string());
        self.has_reserve = false;
        let file = renamed.and_then(|()| self.fs.open_file(&name.to_string()));
        let Ok(file) = file else {
            self.counts.errors += 1;
            return;
        };
        self.segments.push(name, self.config.reserve_bytes);
        match write_fully(&file, &header, 0) {
            Ok(()) => self.use_file(file, true),
            Err(_) => self.counts.errors += 1,
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
