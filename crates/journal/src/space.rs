//! Freeing space: dead segments, and stored responses that are given up.

use crate::file_system::FileSystem;
use crate::stream_table::{LiveStream, StreamKey};
use crate::writer::Writer;

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
