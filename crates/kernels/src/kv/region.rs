//! One large zeroed allocation that uses no memory until the first write.
#![allow(unsafe_code)] // Memory straight from the system: the allocator may touch what it zeroes.

use std::ptr::NonNull;

/// Zeroed u16 elements, mapped lazily, in huge pages where the operating system agrees.
pub(super) struct Region {
    start: NonNull<u16>,
    len: usize,
}

impl Region {
    /// Maps `len` zeros, at least one; `None` if the operating system fails.
    pub(super) fn new(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(2).filter(|bytes| *bytes > 0)?;
        let start = pages::map(bytes)?.cast();
        Some(Self { start, len })
    }

    pub(super) fn as_u16s(&self) -> &[u16] {
        // SAFETY: `len` u16 were mapped at `start`, zeroed, and live until drop.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(super) fn as_u16s_mut(&mut self) -> &mut [u16] {
        // SAFETY: as in `as_u16s`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Reinterprets the bytes as int8 quants.
pub(super) fn as_quants(halves: &[u16]) -> &[i8] {
    // SAFETY: the same memory and lifetime; any byte is an i8, and the alignment of i8 is smaller.
    unsafe { std::slice::from_raw_parts(halves.as_ptr().cast(), halves.len() * 2) }
}

/// Reinterprets the bytes as mutable int8 quants.
pub(super) fn as_quants_mut(halves: &mut [u16]) -> &mut [i8] {
    // SAFETY: as in `as_quants`; any two bytes are a u16, and the borrow stays exclusive.
    unsafe { std::slice::from_raw_parts_mut(halves.as_mut_ptr().cast(), halves.len() * 2) }
}

/// Reinterprets the bytes as pairs of 4-bit quants.
pub(super) fn as_nibbles(halves: &[u16]) -> &[u8] {
    // SAFETY: as in `as_quants`, for u8.
    unsafe { std::slice::from_raw_parts(halves.as_ptr().cast(), halves.len() * 2) }
}

/// Reinterprets the bytes as mutable pairs of 4-bit quants.
pub(super) fn as_nibbles_mut(halves: &mut [u16]) -> &mut [u8] {
    // SAFETY: as in `as_quants_mut`, for u8.
    unsafe { std::slice::from_raw_parts_mut(halves.as_mut_ptr().cast(), halves.len() * 2) }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size, and no borrow of it outlives `self`.
        unsafe { pages::unmap(self.start.cast(), self.len * 2) };
    }
}

// SAFETY: the memory is owned like the buffer of a `Vec<u16>`.
unsafe impl Send for Region {}
// SAFETY: shared access only reads, as for a `Vec<u16>`.
unsafe impl Sync for Region {}

#[cfg(unix)]
mod pages {
    use std::ptr::NonNull;

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        #[cfg(target_os = "linux")]
        // SAFETY: the range was mapped just now. The advice may be refused; then pages are small.
        unsafe {
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
        NonNull::new(start.cast())
    }

    /// # Safety
    /// `start` and `bytes` are of one `map`, and the memory is not used again.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}

#[cfg(not(unix))]
mod pages {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, 16).ok()
    }

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: `Region::new` asks for at least two bytes.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) })
    }

    /// # Safety
    /// `start` and `bytes` are of one `map`, and the memory is not used again.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: guaranteed by the caller.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }
}
