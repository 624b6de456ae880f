//! The four header words in memory, and as a 32-bit processor sees them.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Flag: the writer has closed the ring.
const CLOSED: u32 = 1;
/// Flag: a lossless writer found the ring full, or a drop-oldest writer has overwritten an item.
const OVERFLOWED: u32 = 2;
/// Flag: the reader is gone.
const ABANDONED: u32 = 4;

/// Byte offsets of the words in the header. Each index has a separate cache line, so that the ends disturb
/// each other as little as possible.
pub const HEADER_OFFSETS: [usize; 4] = [0, 128, 256, 264];

/// Two cache lines: processors prefetch the neighboring line.
#[repr(C, align(128))]
struct Line<T>(T);

#[repr(C)]
pub(crate) struct SharedHeader {
    written: Line<AtomicU64>,
    consumed: Line<AtomicU64>,
    capacity: Line<Rest>,
    /// Items whose slots may have been touched; drop-oldest only.
    claimed: Line<AtomicU64>,
}

#[repr(C)]
struct Rest {
    capacity: u64,
    flags: AtomicU32,
}

const _: () = {
    let rest = std::mem::offset_of!(SharedHeader, capacity);
    let offsets = [
        std::mem::offset_of!(SharedHeader, written),
        std::mem::offset_of!(SharedHeader, consumed),
        rest + std::mem::offset_of!(Rest, capacity),
        rest + std::mem::offset_of!(Rest, flags),
    ];
    let mut word = 0;
    while word < 4 {
        assert!(offsets[word] == HEADER_OFFSETS[word]);
        word += 1;
    }
};

impl SharedHeader {
    pub(crate) fn new(capacity: u64, first: u64) -> Self {
        Self {
            written: Line(AtomicU64::new(first)),
            consumed: Line(AtomicU64::new(first)),
            capacity: Line(Rest {
                capacity,
                flags: AtomicU32::new(0),
            }),
            claimed: Line(AtomicU64::new(first)),
        }
    }

    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written.0.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn publish(&self, written: u64) {
        self.written.0.store(written, Ordering::Release);
    }

    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed.0.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn consume(&self, consumed: u64) {
        self.consumed.0.store(consumed, Ordering::Release);
    }

    /// Called by the writer before a Release fence. The store is a Release store, too: a thread that sees the
    /// new count sees earlier publications.
    #[inline]
    pub(crate) fn claim(&self, claimed: u64) {
        self.claimed.0.store(claimed, Ordering::Release);
    }

    /// Called by the reader after an Acquire fence.
    #[inline]
    pub(crate) fn claimed(&self) -> u64 {
        self.claimed.0.load(Ordering::Acquire)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.0.capacity
    }

    pub(crate) fn close(&self) {
        self.set(CLOSED);
    }

    pub(crate) fn overflow(&self) {
        self.set(OVERFLOWED);
    }

    pub(crate) fn abandon(&self) {
        self.set(ABANDONED);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.flags() & CLOSED != 0
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.flags() & ABANDONED != 0
    }

    fn set(&self, flag: u32) {
        self.capacity.0.flags.fetch_or(flag, Ordering::Release);
    }

    fn flags(&self) -> u32 {
        self.capacity.0.flags.load(Ordering::Acquire)
    }

    pub(crate) fn view(&self) -> Header {
        // The reader's word first: consumed items were written before.
        let consumed = self.consumed();
        Header {
            words: [
                self.written() as u32,
                consumed as u32,
                self.capacity() as u32,
                self.flags(),
            ],
        }
    }
}

/// A snapshot of the header in the form that a 32-bit processor reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Items written, items consumed (both modulo 2^32), capacity, flags.
    pub words: [u32; 4],
}

impl Header {
    /// Items written and not yet consumed; in a drop-oldest ring, those that still exist.
    pub fn pending(&self) -> u32 {
        let [written, consumed, capacity, _] = self.words;
        written.wrapping_sub(consumed).min(capacity)
    }

    /// Slot of the item with this number (modulo 2^32); `None` where the capacity is not a power of two, so
    /// that the lower half of a number does not determine the slot.
    pub fn slot(&self, number: u32) -> Option<u32> {
        let capacity = self.words[2];
        capacity.is_power_of_two().then(|| number & (capacity - 1))
    }

    /// Whether the writer has closed the ring.
    pub fn closed(&self) -> bool {
        self.words[3] & CLOSED != 0
    }

    /// Whether the ring was full at least once: a lossless writer was rejected, or a drop-oldest writer has
    /// overwritten.
    pub fn overflowed(&self) -> bool {
        self.words[3] & OVERFLOWED != 0
    }

    /// Whether the reader is gone.
    pub fn abandoned(&self) -> bool {
        self.words[3] & ABANDONED != 0
    }
}
