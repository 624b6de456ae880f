//! Segments on the disk, oldest first.

use crate::segment_name::SegmentName;
use std::collections::VecDeque;

/// Names and sizes. The newest is the one that is written, if any is.
#[derive(Debug, Default)]
pub(crate) struct SegmentList {
    segments: VecDeque<(SegmentName, u64)>,
    bytes: u64,
    /// Number of the next segment.
    pub(crate) next_number: u64,
}

impl SegmentList {
    pub(crate) fn push(&mut self, name: SegmentName, bytes: u64) {
        self.segments.push_back((name, bytes));
        self.bytes += bytes;
        self.next_number = self.next_number.max(name.number + 1);
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn grow_newest(&mut self, bytes: u64) {
        if let Some((_, size)) = self.segments.back_mut() {
            *size += bytes;
            self.bytes += bytes;
        }
    }

    pub(crate) fn oldest(&self) -> Option<SegmentName> {
        self.segments.front().map(|(name, _)| *name)
    }

    pub(crate) fn newest(&self) -> Option<SegmentName> {
        self.segments.back().map(|(name, _)| *name)
    }

    pub(crate) fn pop_oldest(&mut self) {
        if let Some((_, bytes)) = self.segments.pop_front() {
            self.bytes -= bytes;
        }
    }
}
