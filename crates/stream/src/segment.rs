//! One fixed-size piece of a log's storage.
//!
//! A segment has two states. *Free*: it lies in the pool's free list, nobody looks inside. *Taken*:
//! it belongs to one log; the log's writer writes each place once, in order, and publishes it
//! through the log's length; readers look at published places only. A published place is never
//! written again until the segment is free, which is when the log's last holder is gone.

use crate::SEGMENT_ITEMS;
use crate::sync::UnsafeCell;
use std::mem::MaybeUninit;

/// Storage for [`SEGMENT_ITEMS`] items. Items are `Copy`, so nothing in it needs dropping.
pub(crate) struct Segment<T> {
    items: Box<[UnsafeCell<MaybeUninit<T>>]>, // (SEGMENT_ITEMS)
}

// SAFETY: places are shared between threads only after they were published and are not written
// again while shared (see the module docs); sharing an item this way needs `T: Send + Sync`.
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
    /// The caller is the one writer of the log this segment belongs to, and `place` is not
    /// published yet.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "a place is written once, before it is published"
    )]
    pub(crate) unsafe fn write(&self, place: usize, item: T) {
        // SAFETY: by this function's contract nobody else has access to the place.
        self.items[place].with_mut(|p| unsafe { (*p).write(item) });
    }

    /// Copies the items from `place` on into `buf`, all of it.
    ///
    /// # Safety
    /// The places `place..place + buf.len()` are published, and the caller has acquired the
    /// length that says so.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "published places are initialised and no longer written"
    )]
    pub(crate) unsafe fn copy_to(&self, place: usize, buf: &mut [T]) {
        let places = &self.items[place..place + buf.len()];
        for (to, from) in buf.iter_mut().zip(places) {
            // SAFETY: by this function's contract the place is initialised and nobody writes it.
            *to = from.with(|p| unsafe { (*p).assume_init() });
        }
    }
}
