//! Writing: one frame for each commit, in a segment that is created and filled, and what happens when a write fails.

use crate::durability::Impairment;
use crate::file_system::{FileSystem, JournalFile, is_full, write_fully};
use crate::frame::{FrameHeader, LAYOUT_VERSION, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::segment::SegmentName;
use crate::writer::{CurrentSegment, Writer};
use std::io;
use std::sync::Arc;
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

impl<F: FileSystem> Writer<F> {
    /// The current segment becomes one of the full ones.
    pub(crate) fn roll_segment(&mut self) {
        if let Some(current) = self.current.take() {
            self.sync.full.push(current.file);
            self.sync.current_is_dirty = false;
        }
    }

    pub(crate) fn create_segment(&mut self) -> io::Result<()> {
        let name = self.next_name();
        let text = name.to_string();
        let created = self.fs.create_file(&text).and_then(|file| {
            write_fully(&file, &self.segment_header(), 0)?;
            Ok(file)
        });
        let file = created.inspect_err(|_| {
            // A file without a frame is harmless; the number is not used again.
            let _ = self.fs.remove_file(&text);
        })?;
        self.segments.push(name, SEGMENT_HEADER_BYTES as u64);
        self.use_file(Arc::new(file), false);
        Ok(())
    }

    pub(crate) fn next_name(&mut self) -> SegmentName {
        let number = self.segments.next_number;
        self.segments.next_number += 1;
        let boot = self.boot;
        SegmentName { number, boot }
    }

    pub(crate) fn segment_header(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let header = SegmentHeader {
            version: LAYOUT_VERSION,
            first_frame: self.next_frame,
        };
        header.encode()
    }

    pub(crate) fn use_file(&mut self, file: Arc<F::File>, is_reserve: bool) {
        self.current = Some(CurrentSegment {
            file,
            offset: SEGMENT_HEADER_BYTES as u64,
            is_reserve,
        });
        self.sync.current_is_dirty = true;
        self.sync.directory_is_dirty = true;
    }
}
