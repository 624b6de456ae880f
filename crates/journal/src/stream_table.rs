//! Live streams of a writer: those that are not forgotten.

use crate::record_encoding::RecordAddress;

/// Names a stream of one writer. A key of a forgotten stream stays invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    index: u32,
    /// How many streams had the entry before.
    turn: u32,
}

impl StreamKey {
    /// The key of a stream that is in no writer.
    pub const NONE: Self = Self {
        index: u32::MAX,
        turn: u32::MAX,
    };
}

/// Knowledge of a writer about a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveStream {
    pub(crate) id: u128,
    /// Number of the stream in records.
    pub(crate) handle: u64,
    pub(crate) next_sequence: u64,
    /// Bytes of the records since the stream was opened or rewritten.
    pub(crate) bytes: u64,
    /// Number of the segment that contains the first record; the segments from there on are needed.
    pub(crate) base: Option<u64>,
    /// `base` of the version that the present one replaced, which is needed until a sync covers the present one;
    /// `u64::MAX`: none.
    pub(crate) replaced_base: u64,
    /// Number of the frame behind the present version's copy; `u64::MAX` where the sync of the copy's file failed.
    pub(crate) copied_before: u64,
    /// Number of the batch that contains the stream's last record.
    pub(crate) batch: u64,
    /// Number of the batch that contains the stream's beginning.
    pub(crate) opened_in: u64,
    /// Whether a record of the stream may be on the disk, also where its write was reported as failed.
    pub(crate) may_be_written: bool,
    /// Whether records are missing in the journal.
    pub(crate) has_gap: bool,
    /// Whether a record marks the gap.
    pub(crate) gap_is_marked: bool,
    /// Whether only the stored response is left, which may be given up for space.
    pub(crate) is_kept: bool,
    /// Records of a stream that a newer version opened: kinds, lengths and bodies.
    pub(crate) refused: Option<Box<[u8]>>,
}

impl LiveStream {
    pub(crate) fn new(id: u128, handle: u64) -> Self {
        Self {
            id,
            handle,
            replaced_base: u64::MAX,
            ..Self::default()
        }
    }

    /// The first segment that is needed.
    pub(crate) fn needed_from(&self) -> u64 {
        self.base.unwrap_or(u64::MAX).min(self.replaced_base)
    }

    /// The frames below this number are on the disk.
    pub(crate) fn note_synced(&mut self, frames: u64) {
        if self.copied_before <= frames {
            self.replaced_base = u64::MAX;
        }
    }

    /// A sync failed: where the present version is a copy that no sync covered, only another copy can replace the
    /// version before.
    pub(crate) fn note_failed_sync(&mut self) {
        if self.replaced_base != u64::MAX {
            self.copied_before = u64::MAX;
        }
    }

    pub(crate) fn address(&self) -> RecordAddress {
        RecordAddress {
            handle: self.handle,
            sequence: self.next_sequence,
        }
    }

    /// The address of the next record, which is used up.
    pub(crate) fn take_address(&mut self) -> RecordAddress {
        let address = self.address();
        self.next_sequence += 1;
        address
    }
}

#[derive(Debug)]
struct Entry {
    turn: u32,
    stream: Option<LiveStream>,
}

/// Bytes of an entry, as docs/memory.md states.
const ENTRY_BYTES: usize = 128;

const _: () = assert!(size_of::<Entry>() <= ENTRY_BYTES);

/// Entries that are used again.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl StreamTable {
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Entries, used or not: the bound of [`key_at`](Self::key_at).
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn insert(&mut self, stream: LiveStream) -> StreamKey {
        let index = self.free.pop().unwrap_or(self.entries.len() as u32);
        if index as usize == self.entries.len() {
            let (turn, stream) = (0, None);
            self.entries.push(Entry { turn, stream });
            // `remove` needs no memory later.
            self.free.reserve(self.entries.len() - self.free.len());
        }
        let entry = &mut self.entries[index as usize];
        entry.stream = Some(stream);
        let turn = entry.turn;
        StreamKey { index, turn }
    }

    pub(crate) fn get(&self, key: StreamKey) -> Option<&LiveStream> {
        let entry = self.entries.get(key.index as usize)?;
        entry.stream.as_ref().filter(|_| entry.turn == key.turn)
    }

    pub(crate) fn get_mut(&mut self, key: StreamKey) -> Option<&mut LiveStream> {
        let entry = self.entries.get_mut(key.index as usize)?;
        entry.stream.as_mut().filter(|_| entry.turn == key.turn)
    }

    pub(crate) fn remove(&mut self, key: StreamKey) -> Option<LiveStream> {
        self.get(key)?;
        let entry = self.entries.get_mut(key.index as usize)?;
        entry.turn = entry.turn.wrapping_add(1);
        self.free.push(key.index);
        entry.stream.take()
    }

    /// The key of the entry with this index, if used.
    pub(crate) fn key_at(&self, index: usize) -> Option<StreamKey> {
        let entry = self.entries.get(index)?;
        entry.stream.as_ref()?;
        Some(StreamKey {
            index: index as u32,
            turn: entry.turn,
        })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = StreamKey> {
        (0..self.entries.len()).filter_map(|index| self.key_at(index))
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = &LiveStream> {
        self.entries
            .iter()
            .filter_map(|entry| entry.stream.as_ref())
    }

    pub(crate) fn streams_mut(&mut self) -> impl Iterator<Item = &mut LiveStream> {
        self.entries
            .iter_mut()
            .filter_map(|entry| entry.stream.as_mut())
    }
}
