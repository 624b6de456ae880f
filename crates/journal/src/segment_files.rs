//! Creating segments and filling them.

use crate::file_system::{FileSystem, write_fully};
use crate::frame::{LAYOUT_VERSION, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::segment_name::SegmentName;
use crate::writer::{CurrentSegment, Writer};
use std::io;
use std::sync::Arc;

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
