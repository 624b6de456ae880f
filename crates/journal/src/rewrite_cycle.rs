//! When live streams are rewritten from the caller's memory, so that old segments can be deleted.

use crate::durability::Durability;
use crate::file_system::FileSystem;
use crate::record::{OPEN_VERSION, Record, SEGMENTS_MAX, kind};
use crate::record_encoding::{RawRecord, RecordAddress, RecordDecoder};
use crate::stream_table::StreamKey;
use crate::writer::Writer;

/// One pass over all live streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RewriteCycle {
    /// Streams with records in segments below this number are rewritten, and those with gaps.
    pub(crate) below: u64,
    /// Index of the next entry in the table of streams.
    cursor: usize,
}

impl<F: FileSystem> Writer<F> {
    /// The next stream that has to be rewritten, if any: pass the state to [`rewrite_stream`](Self::rewrite_stream), or
    /// forget the stream. Each call returns another stream.
    pub fn next_rewrite(&mut self) -> Option<StreamKey> {
        while self.health.is_writing() {
            let cycle = self.cycle.as_mut()?;
            if cycle.cursor >= self.streams.capacity() {
                self.cycle = None;
                return None;
            }
            let (below, index) = (cycle.below, cycle.cursor);
            cycle.cursor += 1;
            let Some(key) = self.streams.key_at(index) else {
                continue;
            };
            let Some(stream) = self.streams.get(key) else {
                continue;
            };
            if stream.base.is_some_and(|base| base >= below) && !stream.has_gap {
                continue;
            }
            if stream.refused.is_some() {
                self.rewrite_refused(key);
            } else {
                return Some(key);
            }
        }
        None
    }

    /// Rewrites a stream of a newer version from the bytes that were read at the start.
    fn rewrite_refused(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let Some(records) = stream.refused.take() else {
            return;
        };
        let mut rest = RefusedRecords(&records);
        let mut decoder = RecordDecoder::default();
        let open = rest.next().and_then(|raw| decoder.decode_body(raw));
        if let Some(Record::Open(open)) = open {
            debug_assert!(open.version > OPEN_VERSION);
            let copied = self.copy_stream(key, open, |copy| {
                for raw in rest {
                    let (kind, body) = (raw.kind, raw.body);
                    // The record was read from the journal, so the size is within the bounds.
                    let _ = copy.push(&Record::Unknown { kind, body });
                }
            });
            debug_assert!(copied.is_ok(), "the stream is in the table");
        }
        if let Some(stream) = self.streams.get_mut(key) {
            stream.refused = Some(records);
        }
    }

    pub(crate) fn begin_cycle(&mut self, below: u64) {
        self.cycle = Some(RewriteCycle { below, cursor: 0 });
    }

    /// Begins to rewrite where the dead bytes exceed one segment, where there are many small segments, or where streams
    /// have gaps although the disk works.
    pub(crate) fn begin_cycle_if_needed(&mut self) {
        let is_ready = self.cycle.is_none()
            && self.durability() == Durability::Durable
            && self.sync.frames >= self.rewritten_at;
        if !is_ready {
            return;
        }
        let dead_bytes = self.segments.bytes().saturating_sub(self.live_bytes);
        let has_waste = dead_bytes > self.config.segment_bytes_bounded();
        if has_waste || self.segments.len() > SEGMENTS_MAX {
            self.roll_segment();
            self.begin_cycle(self.segments.next_number);
        } else if self.gaps > 0 && self.may_close_gaps() {
            self.health.postpone(self.now);
            self.begin_cycle(0);
        }
    }

    fn may_close_gaps(&self) -> bool {
        let limit = self.config.live_bytes_max();
        self.live_bytes < limit - limit / 8 && self.now >= self.health.retry_at
    }
}

/// Records of a refused stream: kind, length as u32, body.
struct RefusedRecords<'a>(&'a [u8]);

impl<'a> Iterator for RefusedRecords<'a> {
    type Item = RawRecord<'a>;

    fn next(&mut self) -> Option<RawRecord<'a>> {
        let (kind, rest) = self.0.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = rest;
        debug_assert!(
            *kind != kind::FORGOTTEN,
            "a forgotten stream is not rewritten"
        );
        Some(RawRecord {
            kind: *kind,
            address: RecordAddress {
                handle: 0,
                sequence: 0,
            },
            body,
            bytes: 0,
        })
    }
}
