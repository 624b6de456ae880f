//! Frames to streams: the state machine of recovery.

use crate::frame::FrameHeader;
use crate::record::{OPEN_VERSION, Open, REWRITTEN, Record, kind};
use crate::record_encoding::{RawRecord, RecordAddress, RecordDecoder};
use crate::recovered_stream::{Integrity, LossReason, RecoveryReport};
use crate::replayed_stream::{ENTRY_BYTES, MemoryBudget, ReplayedStream};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Streams by handle, and counts.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) streams: HandleMap<ReplayedStream>,
    /// Unfinished copies: from the handle that is replaced to the copy's.
    copies: HandleMap<u64>,
    /// Finished copies that are there: from the handle that was replaced to the copy's.
    replacements: HandleMap<u64>,
    /// Handles of records whose stream is not there, and was not forgotten.
    orphans: HandleMap<()>,
    budget: MemoryBudget,
    decoder: RecordDecoder,
    pub(crate) report: RecoveryReport,
    pub(crate) handle_max: u64,
    /// Number of the last frame before which synced frames are missing.
    damaged_before: Option<u64>,
}

/// Result of a replay.
#[derive(Debug)]
pub(crate) struct ReplayedJournal {
    pub(crate) streams: Vec<(u64, ReplayedStream)>,
    /// Next records of unfinished copies and of originals whose end is missing: they are to be forgotten.
    pub(crate) unused: Vec<RecordAddress>,
    pub(crate) report: RecoveryReport,
    pub(crate) handle_max: u64,
}

impl Replay {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            budget: MemoryBudget { free: bytes_max },
            ..Self::default()
        }
    }

    /// Synced frames before this one are missing.
    pub(crate) fn note_damage(&mut self, frame: u64) {
        self.report.damages += 1;
        self.damaged_before = Some(frame);
    }

    /// Applies the records of one frame of the segment with this number.
    pub(crate) fn apply_frame(&mut self, header: &FrameHeader, segment: u64, records: &[u8]) {
        self.report.frames += 1;
        self.report.last_boot = self.report.last_boot.max(header.boot);
        let mut rest = records;
        while !rest.is_empty() {
            let Some(raw) = RawRecord::read(rest) else {
                self.note_damage(header.number + 1);
                return;
            };
            rest = rest.get(raw.bytes..).unwrap_or_default();
            self.report.is_sealed = raw.kind == kind::SEAL;
            if raw.kind == kind::OPEN {
                self.open_stream(raw, header, segment);
            } else if raw.kind != kind::SEAL {
                self.apply_record(raw, header);
            }
        }
    }

    fn open_stream(&mut self, raw: RawRecord<'_>, header: &FrameHeader, segment: u64) {
        let handle = raw.address.handle;
        self.handle_max = self.handle_max.max(handle);
        let mut decoder = std::mem::take(&mut self.decoder);
        if let Some(Record::Open(open)) = decoder.decode_body(raw)
            && !self.streams.contains_key(&handle)
        {
            self.insert_stream(&open, raw, header, segment);
        }
        self.decoder = decoder;
    }

    fn insert_stream(
        &mut self,
        open: &Open<'_>,
        raw: RawRecord<'_>,
        header: &FrameHeader,
        segment: u64,
    ) {
        if self.budget.take(ENTRY_BYTES).is_none() {
            self.report.dropped_streams += 1;
            return;
        }
        let mut stream = ReplayedStream::new(open, header.boot);
        stream.next_sequence = raw.address.sequence + 1;
        stream.base = segment;
        stream.bytes = raw.bytes as u64;
        stream.last_frame = header.number;
        stream.held = ENTRY_BYTES;
        if open.version > OPEN_VERSION {
            push_refused(&mut stream, raw, &mut self.budget);
        } else {
            stream.set_description(open.body, &mut self.budget);
        }
        // An edited file may name another stream.
        let original = self.streams.get(&open.replaces);
        if original.is_some_and(|original| original.id != open.id) {
            stream.replaces = 0;
        }
        if stream.replaces != 0
            && let Some(unfinished) = self.copies.insert(open.replaces, raw.address.handle)
        {
            self.remove_stream(unfinished);
        }
        self.streams.insert(raw.address.handle, stream);
    }

    fn apply_record(&mut self, raw: RawRecord<'_>, header: &FrameHeader) {
        let handle = raw.address.handle;
        self.handle_max = self.handle_max.max(handle);
        let Some(stream) = self.streams.get_mut(&handle) else {
            self.apply_orphan(raw);
            return;
        };
        if raw.address.sequence < stream.next_sequence {
            return; // The second copy of a frame whose first write was reported as failed.
        }
        if raw.address.sequence > stream.next_sequence {
            stream.lose(LossReason::Hole);
        }
        stream.next_sequence = raw.address.sequence.saturating_add(1);
        stream.bytes += raw.bytes as u64;
        stream.last_frame = header.number;
        if raw.kind == kind::FORGOTTEN {
            self.forget_stream(raw);
        } else if stream.version > OPEN_VERSION {
            push_refused(stream, raw, &mut self.budget);
        } else {
            let record = self.decoder.decode_body(raw);
            let is_unknown = matches!(record, Some(Record::Unknown { .. }));
            self.report.unknown_records += u64::from(is_unknown);
            match record {
                Some(record) => stream.apply(&record, header.boot, &mut self.budget),
                None => stream.lose(LossReason::Contradiction),
            }
        }
    }

    /// A record of a stream whose beginning is not there. A segment is removed when its streams were forgotten or written again, so
    /// without a later record that says so the beginning was lost.
    fn apply_orphan(&mut self, raw: RawRecord<'_>) {
        let handle = raw.address.handle;
        self.report.orphan_records += 1;
        if raw.kind == kind::FORGOTTEN {
            if self.orphans.remove(&handle).is_some() {
                self.budget.free += ENTRY_BYTES;
            }
            self.forget_stream(raw);
        } else if !self.orphans.contains_key(&handle) && self.budget.take(ENTRY_BYTES).is_some() {
            self.orphans.insert(handle, ());
        }
    }

    /// Removes a stream, and completes the copy that replaces the removed one.
    fn forget_stream(&mut self, raw: RawRecord<'_>) {
        let handle = raw.address.handle;
        let replacement = match self.decoder.decode_body(raw) {
            Some(Record::Forgotten { why, copy }) if why == REWRITTEN => Some(copy),
            _ => None,
        };
        if self.streams.contains_key(&handle) {
            self.remove_stream(handle);
        } else {
            self.remove_replacement(handle, replacement);
        }
        let Some(copy) = self.copies.remove(&handle) else {
            return;
        };
        // The copy that is named may be lost, and the unfinished one of an earlier process be there.
        if replacement.is_some_and(|named| named == copy || named == 0) {
            if let Some(stream) = self.streams.get_mut(&copy) {
                self.replacements.insert(handle, copy);
                stream.replaced = std::mem::take(&mut stream.replaces);
            }
        } else {
            self.remove_stream(copy);
        }
    }

    /// Removes the copy that has replaced this version, unless it is the named one: it was given up, because the write of its
    /// end was reported as failed.
    fn remove_replacement(&mut self, handle: u64, named: Option<u64>) {
        if let Some(copy) = self.replacements.get(&handle).copied()
            && named != Some(copy)
            && named != Some(0)
        {
            self.remove_stream(copy);
        }
    }

    fn remove_stream(&mut self, handle: u64) {
        if let Some(stream) = self.streams.remove(&handle) {
            self.replacements.remove(&stream.replaced);
            self.budget.free += stream.held;
        }
    }

    /// The streams in the order of their handles, one for each id, and the addresses of the versions that are not used.
    pub(crate) fn finish(mut self) -> ReplayedJournal {
        // A stream that was dropped for lack of memory is counted as such.
        if self.report.dropped_streams == 0 {
            self.report.lost_beginnings = self.orphans.len() as u64;
        }
        let damaged_before = self.damaged_before.unwrap_or(0);
        let mut versions: Vec<_> = self.streams.into_iter().collect();
        versions.sort_unstable_by_key(|(handle, stream)| {
            // The last complete version of each id, else the first: an unfinished copy never wins over the original.
            let is_copy = stream.replaces != 0;
            let age = if is_copy { *handle } else { u64::MAX - *handle };
            (stream.id, is_copy, age)
        });
        let mut unused = Vec::new();
        let mut last_id = None;
        versions.retain(|(handle, stream)| {
            let is_first = last_id.replace(stream.id) != Some(stream.id);
            if !is_first {
                let (handle, sequence) = (*handle, stream.next_sequence);
                unused.push(RecordAddress { handle, sequence });
            }
            is_first
        });
        versions.sort_unstable_by_key(|(handle, _)| *handle);
        for (_, stream) in &mut versions {
            if stream.replaces != 0 {
                // An unfinished copy whose original is gone: of which process it is, and what a later one told, is unknown.
                stream.drop_text();
            } else if stream.last_frame < damaged_before && stream.integrity == Integrity::Intact {
                stream.integrity = Integrity::TailInDoubt;
            }
        }
        ReplayedJournal {
            streams: versions,
            unused,
            report: self.report,
            handle_max: self.handle_max,
        }
    }
}

/// Keeps kind, length and body of a record, for rewriting without understanding them.
fn push_refused(stream: &mut ReplayedStream, raw: RawRecord<'_>, budget: &mut MemoryBudget) {
    stream.push_refused(&[raw.kind], budget);
    stream.push_refused(&(raw.body.len() as u32).to_le_bytes(), budget);
    stream.push_refused(raw.body, budget);
}

/// A map by handle. Handles are consecutive numbers from a file with checksums.
pub(crate) type HandleMap<V> = HashMap<u64, V, BuildHasherDefault<HandleHasher>>;

/// Multiplicative hash (Fibonacci hashing) of one integer.
#[derive(Debug, Default)]
pub(crate) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
