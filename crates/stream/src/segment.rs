//! One fixed-size piece of a log's storage.
//!
//! A segment has two states. *Free*: in the pool's free list, without accesses. *Taken*: owned by one log; the
//! log's writer writes each item once, in order, and publishes items through the log's length; readers access
//! published items only. A published item is not written again until the segment is free, after the drop of the
//! log's last holder.

use crate::SEGMENT_ITEMS;
use crate::sync::UnsafeCell;
use std::mem::MaybeUninit;

/// Storage for [`SEGMENT_ITEMS`] items. Items are `Copy`, so nothing is dropped.
pub(crate) struct Segment<T> {
    items: Box<[UnsafeCell<MaybeUninit<T>>]>, // (SEGMENT_ITEMS)
}

// SAFETY: items are shared between threads only after publication and are not written while shared (see the
// module docs); sharing requires `T: Send + Sync`.
#[expect(unsafe_code, reason = "the cells are ordered by the log's length")]
unsafe impl<T: Send + Sync> Sync for Segment<T> {}

impl<T: Copy> Segment<T> {
    pub(crate) fn new() -> Self {
        let place = |_| UnsafeCell::new(MaybeUninit::uninit());
        Self {
            items: (0..SEGMENT_ITEMS).map(place).collect(),
        }
    }

    /// Writes the item at `place`.
    ///
    /// # Safety
    /// The caller is the only writer of the log that owns this segment, and `place` is not published yet.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "a place is written once, before it is published"
    )]
    pub(crate) unsafe fn write(&self, place: usize, item: T) {
        // SAFETY: by this function's contract no other thread accesses the item.
        self.items[place].with_mut(|p| unsafe { (*p).write(item) });
    }

    /// Fills `buf` with the items from `place` on.
    ///
    /// # Safety
    /// The items `place..place + buf.len()` are published, and the caller has acquired the length that covers
    /// them.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "published places are initialised and no longer written"
    )]
    pub(crate) unsafe fn copy_to(&self, place: usize, buf: &mut [T]) {
        let places = &self.items[place..place + buf.len()];
        for (to, from) in buf.iter_mut().zip(places) {
            // SAFETY: by this function's contract the item is initialized and not written.
            *to = from.with(|p| unsafe { (*p).assume_init() });
        }
    }
}
