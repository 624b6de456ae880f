//! Writing: one frame for each commit, and what happens when a write fails.

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES};
use crate::group_commit::Impairment;
use crate::journal_directory::{FileSystem, JournalFile, is_full, write_fully};
use crate::record::{BATCH_BYTES_MAX, Record};
use crate::record_encoding::{RecordAddress, RecordError, encode_record};
use crate::writer::{CurrentSegment, Writer};
use std::io;
use std::time::Duration;

/// Attempts to write one frame: the second after space was freed or in a new segment.
const ATTEMPTS_MAX: usize = 3;

impl<F: FileSystem> Writer<F> {
    /// Writes everything appended so far, frees dead segments and begins to rewrite streams where needed. Returns the
    /// number of this commit, for [`acknowledged`](Self::acknowledged).
    pub fn commit(&mut self, now: Duration) -> u64 {
        self.now = self.now.max(now);
        if !self.health.is_writing() && self.now >= self.health.retry_at {
            self.resume_writing();
        }
        self.flush_batch();
        self.release_excess();
        self.delete_dead_segments();
        self.begin_cycle_if_needed();
        self.note_slow_sync();
        self.commits += 1;
        self.update_acknowledged();
        self.commits
    }

    /// Writes the batch as one frame. A batch that cannot be written is dropped, and the streams have gaps.
    pub(crate) fn flush_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if !self.health.is_writing() {
            self.write_to_reserve();
            return;
        }
        let mut impairment = Impairment::DiskFull;
        for _ in 0..ATTEMPTS_MAX {
            impairment = match self.write_frame() {
                Ok(()) => return,
                Err(impairment) => impairment,
            };
            self.counts.errors += 1;
            match impairment {
                Impairment::DiskFull | Impairment::SpaceLimit => {
                    if !self.release_for_space() {
                        break;
                    }
                }
                _ => self.rewrite_all(),
            }
        }
        self.stop_writing(impairment);
    }

    fn write_frame(&mut self) -> Result<(), Impairment> {
        let bytes = self.batch.byte_length();
        if self.used_bytes() + bytes + SEGMENT_HEADER_BYTES as u64 > self.config.bytes_max {
            return Err(Impairment::SpaceLimit);
        }
        let limit = self.config.segment_bytes_bounded();
        let is_full = |current: &CurrentSegment<F>| {
            current.offset + bytes > limit && current.offset > SEGMENT_HEADER_BYTES as u64
        };
        if self.current.as_ref().is_some_and(is_full) {
            self.roll_segment();
        }
        if self.current.is_none() {
            self.create_segment()
                .map_err(|error| impairment_of(&error))?;
        }
        self.write_current()
    }

    /// Segments and reserve.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.segments.bytes() + u64::from(self.reserve.is_some()) * self.config.reserve_bytes
    }

    /// Writes the frame at the end of the current segment.
    pub(crate) fn write_current(&mut self) -> Result<(), Impairment> {
        let Some(current) = self.current.as_mut() else {
            return Err(impairment_of(&io::ErrorKind::NotFound.into()));
        };
        let frame = self.batch.finish(FrameHeader {
            number: self.next_frame,
            boot: self.boot,
            settled: self.sync.settled_frames,
        });
        let bytes = frame.len() as u64;
        if let Err(error) = write_fully(&*current.file, frame, current.offset) {
            if !current.is_reserve {
                // The next write begins at the same place, so this only gives space back.
                let _ = current.file.set_length(current.offset);
            }
            return Err(impairment_of(&error));
        }
        current.offset += bytes;
        if !current.is_reserve {
            self.segments.grow_newest(bytes);
        }
        self.sync.current_is_dirty = true;
        self.counts.written_bytes += bytes;
        self.counts.frames += 1;
        self.next_frame += 1;
        self.batch.clear();
        Ok(())
    }

    /// Begins to write all live streams once more, into a new segment.
    pub(crate) fn rewrite_all(&mut self) {
        self.roll_segment();
        self.begin_cycle(self.segments.next_number);
    }
}

fn impairment_of(error: &io::Error) -> Impairment {
    if is_full(error) {
        Impairment::DiskFull
    } else {
        Impairment::WriteFailed(error.into())
    }
}

/// A frame under construction. The buffer is used again for each frame.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Number of the batch; grows with each frame that was written or given up.
    pub(crate) number: u64,
}

impl Batch {
    /// A batch that is full at `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: vec![0; FRAME_HEADER_BYTES],
            bytes_max: bytes_max.min(BATCH_BYTES_MAX),
            number: 1,
        }
    }

    pub(crate) fn push(
        &mut self,
        address: RecordAddress,
        record: &Record<'_>,
    ) -> Result<u64, RecordError> {
        encode_record(&mut self.bytes, address, record).map(|bytes| bytes as u64)
    }

    pub(crate) fn push_encoded(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() == FRAME_HEADER_BYTES
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max
    }

    pub(crate) fn byte_length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Header and records.
    pub(crate) fn finish(&mut self, header: FrameHeader) -> &[u8] {
        header.write_into(&mut self.bytes);
        &self.bytes
    }

    /// Begins the next batch. A buffer that grew for a large record is given back.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER_BYTES);
        self.bytes.shrink_to(2 * BATCH_BYTES_MAX);
        self.number += 1;
    }

    /// Begins the next batch and returns the records of this one.
    pub(crate) fn take_records(&mut self) -> Vec<u8> {
        let records = self.bytes.split_off(FRAME_HEADER_BYTES);
        self.clear();
        records
    }
}
