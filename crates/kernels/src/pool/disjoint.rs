//! A mutable slice that several workers write at the same time, each worker its own range.
#![allow(unsafe_code)] // The borrow checker cannot see that workers' parts do not overlap.

use std::marker::PhantomData;
use std::ops::Range;

/// A borrowed mutable slice whose ranges are handed to different workers.
pub(crate) struct DisjointSlice<'a, T> {
    start: *mut T,
    len: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: sharing only hands out ranges as `&mut [T]`, and users guarantee that ranges do not overlap.
unsafe impl<T: Send> Sync for DisjointSlice<'_, T> {}

impl<'a, T> DisjointSlice<'a, T> {
    /// Borrows `slice`.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            _borrow: PhantomData,
        }
    }

    /// A mutable range of the slice.
    ///
    /// # Safety
    /// No overlapping range is in use at the same time.
    ///
    /// # Panics
    /// If `range` is not within the slice.
    #[expect(clippy::mut_from_ref, reason = "the caller promises disjoint parts")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: within the borrowed slice by the check, and exclusive by the caller's guarantee.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
