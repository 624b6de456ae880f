//! State shared by both ends of a ring, and the bell that wakes a side that sleeps at one end.

use super::header::SharedHeader;
use super::item::Item;
use super::item::sealed::Sealed as _;
use super::{RingReader, RingWriter};
use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, fence};
use crate::wait::Waiter;
use std::task::Waker;

/// Largest capacity: half of what 32 bits count, so that the difference of two lower halves is unambiguous.
pub const CAPACITY_MAX: usize = 1 << 31;

/// Behavior of a writer when the ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// The writer gets [`super::Refused::Full`]. For tokens.
    Lossless,
    /// The writer overwrites the oldest item; the reader counts dropped items. For telemetry.
    DropOldest,
}

/// Opens a ring and allocates all memory of the ring.
///
/// # Errors
/// `capacity` is 0 or above [`CAPACITY_MAX`].
pub fn open<T: Item>(
    capacity: usize,
    kind: RingKind,
) -> Result<(RingWriter<T>, RingReader<T>), CapacityError> {
    open_at(capacity, kind, 0)
}

/// Opens a ring whose first item has the number `first`, to continue a numbering. No number reaches 2^64.
///
/// # Errors
/// As [`open`].
pub fn open_at<T: Item>(
    capacity: usize,
    kind: RingKind,
    first: u64,
) -> Result<(RingWriter<T>, RingReader<T>), CapacityError> {
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        return Err(CapacityError { capacity });
    }
    let channel = Arc::new(Channel::new(capacity, kind, first));
    let reader = RingReader::new(Arc::clone(&channel), first);
    Ok((RingWriter::new(channel, first), reader))
}

/// Invalid capacity of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityError {
    /// Requested capacity.
    pub capacity: usize,
}

impl std::fmt::Display for CapacityError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let capacity = self.capacity;
        write!(f, "capacity is {capacity}; from 1 to {CAPACITY_MAX}")
    }
}

impl std::error::Error for CapacityError {}

type AtomicOf<T> = <<T as Item>::Cell as super::item::sealed::Sealed>::Atomic;

pub(crate) struct Channel<T: Item> {
    pub(crate) shared: SharedHeader,
    pub(crate) kind: RingKind,
    cells: Box<[AtomicOf<T>]>, // (capacity, T::CELLS)
    /// Rung when there are items to read, or the ring is closed.
    pub(crate) reader: Bell,
    /// Rung when there is room again, or the reader is gone.
    pub(crate) writer: Bell,
    /// Items that were overwritten before the reader came to them.
    pub(crate) dropped: AtomicU64,
}

impl<T: Item> Channel<T> {
    fn new(capacity: usize, kind: RingKind, first: u64) -> Self {
        let cells = capacity * T::CELLS;
        Self {
            shared: SharedHeader::new(capacity as u64, first),
            kind,
            cells: (0..cells).map(|_| T::Cell::zero()).collect(),
            reader: Bell::new(),
            writer: Bell::new(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Slot of the item with this number.
    pub(crate) fn slot(&self, number: u64) -> usize {
        (number % self.shared.capacity()) as usize
    }

    #[inline]
    pub(crate) fn next_slot(&self, slot: usize) -> usize {
        if slot + 1 == self.shared.capacity() as usize {
            0
        } else {
            slot + 1
        }
    }

    #[inline]
    pub(crate) fn put(&self, slot: usize, item: T) {
        let cells = self.item(slot);
        item.put(|k, value| T::Cell::store(&cells[k], value));
    }

    #[inline]
    pub(crate) fn get(&self, slot: usize) -> T {
        let cells = self.item(slot);
        T::get(|k| T::Cell::load(&cells[k]))
    }

    #[inline]
    fn item(&self, slot: usize) -> &[AtomicOf<T>] {
        &self.cells[slot * T::CELLS..][..T::CELLS]
    }
}

/// Waker of one side.
pub(crate) struct Bell {
    /// Whether a waker was stored since the last wake-up.
    armed: AtomicBool,
    waiter: Waiter,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            armed: AtomicBool::new(false),
            waiter: Waiter::claimed(),
        }
    }

    /// Called by the sleeper, which checks again afterwards.
    pub(crate) fn arm(&self, waker: &Waker) {
        self.waiter.register(waker);
        self.armed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Called by a sleeper that has something to do after all.
    pub(crate) fn disarm(&self) {
        drop(self.waiter.take());
    }

    /// Called by the other side after publishing. If no side sleeps, the cost is a fence and a load.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.armed.swap(false, Ordering::AcqRel);
        if let Some(waker) = self.waiter.take() {
            waker.wake();
        }
    }
}
