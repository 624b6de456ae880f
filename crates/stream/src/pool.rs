//! Bounded storage of logs.
//!
//! A segment is *reserved* when a log is opened, *taken* when the writer crosses into it, and *returned* when
//! the log's last holder is dropped. Reservations are bounded by [`PoolLimits::segments_max`]; taking a
//! reserved segment cannot fail. A segment is allocated when a taker finds the free list empty; from then on
//! the pool owns and reuses the segment.
//!
//! # Free list
//!
//! Segments live in numbered slots that never move, so the free list is a chain of slot numbers: a stack whose
//! top is one 64-bit word `(tag, number + 1)`. *Pop* reads the top, reads the slot's `next`, and exchanges the
//! top for `next`; *push* writes `next`, then exchanges the top.
//!
//! The bad interleaving (ABA): thread P reads top = a and a.next = b, and is preempted; other threads pop a,
//! pop b and push a. The top is a again, but b is taken, and P would make b the top. That cannot happen,
//! because each exchange also changes the tag, so P's exchange fails and P retries.
//!
//! # Why a slot is always available
//!
//! Claim: `allocated` + (takers that found the list empty and have not allocated yet) <= `segments_max`. When a
//! taker finds the list empty, each allocated segment is held by some log, and each holder, or taker about to
//! allocate, still has the reservation for that segment (a return pushes the segment first and withdraws the
//! reservation after). The taker has one more reservation, not yet used. All these reservations are distinct
//! and at most `segments_max`.
//!
//! # The table of slots
//!
//! Slots are in blocks of [`BLOCK_SLOTS`], so that a large bound costs memory only as segments are used. The first block is there from
//! the start; a later one is made by the taker who is about to fill a slot of it. Two takers may come at once: the once-lock
//! keeps the block of one, and both use that. The number of a slot travels from its taker to other threads through the free
//! list or a log's table, after the block was set, so a thread that has a number finds the block.

use crate::log::Segment;
use crate::sync::{Arc, AtomicU32, AtomicU64, AtomicUsize, OnceLock, Ordering};

/// Slots of a block: 512 KiB.
const BLOCK_SLOTS: usize = 1 << 14;

/// Bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Segments reserved at one time, over all logs; at most [`PoolLimits::SEGMENTS_MAX`]. The pool allocates slots (32
    /// bytes for each segment) in blocks of 16,384, and segments ([`SEGMENT_ITEMS`](crate::SEGMENT_ITEMS) items each), at
    /// first use.
    pub segments_max: usize,
}

impl PoolLimits {
    /// The greatest bound: segments are numbered in 32 bits.
    pub const SEGMENTS_MAX: usize = u32::MAX as usize - 1;
}

/// Counts of a pool, for metrics and leak tests. Each count is exact; counts may be of different moments while
/// other threads work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Segments reserved by open logs, taken or not.
    pub reserved: usize,
    /// Segments that currently hold items.
    pub in_use: usize,
    /// Segments ever allocated.
    pub allocated: usize,
    /// Segments taken from the free list instead of being allocated.
    pub reused: u64,
}

/// The pool has too few unreserved segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolExhausted {
    /// Segments requested.
    pub wanted: usize,
    /// Segments that are not reserved.
    pub available: usize,
}

impl std::fmt::Display for PoolExhausted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} log segments wanted, {} available",
            self.wanted, self.available
        )
    }
}

impl std::error::Error for PoolExhausted {}

/// A bounded pool of log segments. Cloning gives another handle to the same pool.
pub struct SegmentPool<T> {
    shared: Arc<PoolState<T>>,
}

impl<T: Copy + Send + Sync + 'static> SegmentPool<T> {
    /// An empty pool with these bounds.
    ///
    /// # Panics
    /// If `segments_max` is more than [`PoolLimits::SEGMENTS_MAX`].
    pub fn new(limits: PoolLimits) -> Self {
        assert!(
            limits.segments_max <= PoolLimits::SEGMENTS_MAX,
            "segments are numbered in 32 bits"
        );
        let shared = PoolState {
            slots: SlotTable::new(limits.segments_max),
            free_top: AtomicU64::new(0),
            reserved: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            allocated: AtomicUsize::new(0),
            reused: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Current counts.
    pub fn stats(&self) -> PoolStats {
        let pool = &self.shared;
        PoolStats {
            reserved: pool.reserved.load(Ordering::Relaxed),
            in_use: pool.in_use.load(Ordering::Relaxed),
            allocated: pool.allocated.load(Ordering::Relaxed),
            reused: pool.reused.load(Ordering::Relaxed),
        }
    }

    /// Reserves `wanted` segments, all or none.
    pub(crate) fn reserve(&self, wanted: usize) -> Result<Reservation<T>, PoolExhausted> {
        self.shared.reserve(wanted)?;
        Ok(Reservation {
            pool: self.clone(),
            untaken: wanted,
        })
    }
}

impl<T> SegmentPool<T> {
    /// The segment with this number, which is taken.
    #[inline]
    pub(crate) fn segment(&self, number: u32) -> &Segment<T> {
        self.shared
            .slots
            .slot(number)
            .segment
            .get()
            .expect("a taken segment was allocated")
    }

    /// Pushes a taken segment onto the free list and withdraws the segment's reservation, in this order.
    pub(crate) fn give_back(&self, number: u32) {
        self.shared.in_use.fetch_sub(1, Ordering::Relaxed);
        self.shared.push(number);
        self.shared.withdraw(1);
    }
}

impl<T> Clone for SegmentPool<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// The right to take a number of segments. Unused reservations are withdrawn on drop.
pub(crate) struct Reservation<T> {
    pool: SegmentPool<T>,
    untaken: usize,
}

impl<T: Copy> Reservation<T> {
    /// Takes one segment; the reservation lasts until [`SegmentPool::give_back`].
    pub(crate) fn take(&mut self) -> u32 {
        assert!(
            self.untaken > 0,
            "a log takes no more segments than it was promised"
        );
        self.untaken -= 1;
        self.pool.shared.take()
    }
}

impl<T> Drop for Reservation<T> {
    fn drop(&mut self) {
        self.pool.shared.withdraw(self.untaken);
    }
}

struct PoolState<T> {
    slots: SlotTable<T>,
    /// `tag << 32 | number + 1` of the first free slot; a lower half of 0 means none.
    free_top: AtomicU64,
    reserved: AtomicUsize,
    in_use: AtomicUsize,
    allocated: AtomicUsize,
    reused: AtomicU64,
}

/// A block of slots, each block but the first made when it is used.
type SlotBlock<T> = Box<[SegmentSlot<T>]>; // (BLOCK_SLOTS)

/// The slots of a pool, in blocks; see the module's documentation.
struct SlotTable<T> {
    /// Slots that may be used; the last block may have more.
    slots_max: usize,
    first: SlotBlock<T>,                  // (slots_max, at most BLOCK_SLOTS)
    later: Box<[OnceLock<SlotBlock<T>>]>, // (blocks)
}

impl<T> SlotTable<T> {
    fn new(slots_max: usize) -> Self {
        let later = slots_max.div_ceil(BLOCK_SLOTS).saturating_sub(1);
        Self {
            slots_max,
            first: Self::block(slots_max.min(BLOCK_SLOTS)),
            later: (0..later).map(|_| OnceLock::new()).collect(),
        }
    }

    fn block(slots: usize) -> Box<[SegmentSlot<T>]> {
        (0..slots).map(|_| SegmentSlot::new()).collect()
    }

    /// The slot with this number, which was taken before.
    #[inline]
    fn slot(&self, number: u32) -> &SegmentSlot<T> {
        let number = number as usize;
        match self.first.get(number) {
            Some(slot) => slot,
            None => self.later_slot(number).expect("a taken slot has a block"),
        }
    }

    fn later_slot(&self, number: usize) -> Option<&SegmentSlot<T>> {
        let block = self.later[number / BLOCK_SLOTS - 1].get()?;
        Some(&block[number % BLOCK_SLOTS])
    }

    /// The slot with this number, which is taken for the first time.
    fn new_slot(&self, number: usize) -> &SegmentSlot<T> {
        assert!(number < self.slots_max, "a reservation covers each slot");
        if number >= self.first.len() && self.later_slot(number).is_none() {
            // Another taker may have set the block meanwhile.
            let _ = self.later[number / BLOCK_SLOTS - 1].set(Self::block(BLOCK_SLOTS));
        }
        self.slot(number as u32)
    }
}

struct SegmentSlot<T> {
    /// While the slot is free: `number + 1` of the next free slot, 0 for none.
    next: AtomicU32,
    segment: OnceLock<Segment<T>>,
}

impl<T> SegmentSlot<T> {
    fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            segment: OnceLock::new(),
        }
    }
}

impl<T: Copy> PoolState<T> {
    fn take(&self) -> u32 {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        if let Some(number) = self.pop() {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return number;
        }
        let number = self.allocated.fetch_add(1, Ordering::Relaxed);
        let fresh = self.slots.new_slot(number).segment.set(Segment::new());
        assert!(fresh.is_ok(), "a slot is filled once");
        number as u32
    }
}

impl<T> PoolState<T> {
    fn reserve(&self, wanted: usize) -> Result<(), PoolExhausted> {
        let mut reserved = self.reserved.load(Ordering::Relaxed);
        loop {
            let available = self.slots.slots_max - reserved;
            if wanted > available {
                return Err(PoolExhausted { wanted, available });
            }
            // Acquire pairs with `withdraw`: segments returned before are visible in the free list.
            let more = reserved + wanted;
            match self.reserved.compare_exchange_weak(
                reserved,
                more,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => reserved = now,
            }
        }
    }

    fn withdraw(&self, promises: usize) {
        self.reserved.fetch_sub(promises, Ordering::Release);
    }

    fn pop(&self) -> Option<u32> {
        let mut top = self.free_top.load(Ordering::Acquire);
        loop {
            let number = (top as u32).checked_sub(1)?;
            let next = self.slots.slot(number).next.load(Ordering::Relaxed);
            match self.exchange_top(top, next) {
                Ok(()) => return Some(number),
                Err(now) => top = now,
            }
        }
    }

    fn push(&self, number: u32) {
        let mut top = self.free_top.load(Ordering::Relaxed);
        loop {
            self.slots
                .slot(number)
                .next
                .store(top as u32, Ordering::Relaxed);
            match self.exchange_top(top, number + 1) {
                Ok(()) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Release publishes writes to a pushed slot, Acquire makes those of a popped slot visible. Each change of
    /// the top is an exchange, so a pop synchronizes with all earlier pushes.
    fn exchange_top(&self, seen: u64, first: u32) -> Result<(), u64> {
        let tag = (seen >> 32) as u32;
        let new = u64::from(tag.wrapping_add(1)) << 32 | u64::from(first);
        self.free_top
            .compare_exchange_weak(seen, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
}
