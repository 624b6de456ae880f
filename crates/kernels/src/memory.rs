//! Zeroed memory in whole cache lines, backed by huge pages where the operating system agrees.
#![allow(unsafe_code)] // Memory straight from the system: only a mapping can be advised before its first touch.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Bytes of a cache line; the alignment of packed weights.
pub(crate) const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([u8; LINE]);

/// Bytes aligned to 64.
pub(crate) struct AlignedBytes(Backing);

/// Plain old data: any bytes, zeros included, are a valid value, and there is no padding.
///
/// # Safety
/// The type has these properties, and an alignment of at most [`LINE`].
pub unsafe trait Pod: Copy {}

// SAFETY: any four bytes are an f32.
unsafe impl Pod for f32 {}
// SAFETY: any two bytes are a u16.
unsafe impl Pod for u16 {}

/// A fixed number of elements, zero at first, in huge pages where the buffer is large enough and the operating
/// system agrees: the buffers of a batch are swept from end to end.
pub struct ZeroedBuffer<T> {
    memory: AlignedBytes,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> ZeroedBuffer<T> {
    /// A buffer of `len` zeros.
    ///
    /// # Panics
    /// If the size in bytes overflows.
    pub fn new(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).expect("bytes are counted");
        Self {
            memory: AlignedBytes::zeroed(bytes),
            len,
            elements: PhantomData,
        }
    }

    /// Pointer to the first element. Unlike a pointer from a slice, later calls leave it valid: the elements are not
    /// borrowed.
    pub(crate) fn base_ptr(&mut self) -> *mut T {
        match &mut self.memory.0 {
            Backing::Small(lines) => lines.as_mut_ptr().cast(),
            #[cfg(target_os = "linux")]
            Backing::Large(mapping) => mapping.start_ptr().cast(),
        }
    }
}

impl<T: Pod> Deref for ZeroedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were allocated at a cache line boundary; any bytes are valid elements.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
}

impl<T: Pod> DerefMut for ZeroedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), self.len) }
    }
}

enum Backing {
    Small(Vec<CacheLine>),
    #[cfg(target_os = "linux")]
    Large(large::Mapping),
}

impl AlignedBytes {
    /// At least `len` zero bytes, rounded up to whole cache lines.
    pub(crate) fn zeroed(len: usize) -> Self {
        let lines = len.div_ceil(LINE);
        #[cfg(target_os = "linux")]
        if lines * LINE >= large::FROM_BYTES
            && let Some(mapping) = large::Mapping::new(lines * LINE)
        {
            return Self(Backing::Large(mapping));
        }
        Self(Backing::Small(vec![CacheLine([0; LINE]); lines]))
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: lines are plain bytes without gaps.
            Backing::Small(lines) => unsafe {
                std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * LINE)
            },
            #[cfg(target_os = "linux")]
            Backing::Large(mapping) => mapping.bytes(),
        }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            // SAFETY: lines are plain bytes without gaps; any byte is a valid one.
            Backing::Small(lines) => unsafe {
                std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * LINE)
            },
            #[cfg(target_os = "linux")]
            Backing::Large(mapping) => mapping.bytes_mut(),
        }
    }
}

#[cfg(target_os = "linux")]
mod large {
    /// A huge page of x86-64 and AArch64. Weights are read once per token, so that TLB misses cost a tenth of
    /// the bandwidth with small pages.
    const PAGE: usize = 2 << 20;
    /// Allocations from this size on get a mapping of their own.
    pub(super) const FROM_BYTES: usize = PAGE;

    /// An anonymous mapping whose data starts at a huge page boundary.
    pub(super) struct Mapping {
        base: *mut libc::c_void,
        mapped: usize,
        start: *mut u8,
        len: usize,
    }

    impl Mapping {
        /// Maps `len` zero bytes; `None` if the operating system fails.
        pub(super) fn new(len: usize) -> Option<Self> {
            // The slack before and after the data is never touched, so only address space is used.
            let mapped = len.checked_next_multiple_of(PAGE)?.checked_add(PAGE)?;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
            let base =
                unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
            if base == libc::MAP_FAILED {
                return None;
            }
            let start = base
                .cast::<u8>()
                .wrapping_add(base.cast::<u8>().align_offset(PAGE));
            let whole_pages = len / PAGE * PAGE;
            // Small pages for the rest: otherwise each matrix would take one huge page more than needed.
            // SAFETY: within the new mapping. The advice may be refused; the pages are small then.
            unsafe { libc::madvise(start.cast(), whole_pages, libc::MADV_HUGEPAGE) };
            Some(Self {
                base,
                mapped,
                start,
                len,
            })
        }

        pub(super) fn start_ptr(&mut self) -> *mut u8 {
            self.start
        }

        pub(super) fn bytes(&self) -> &[u8] {
            // SAFETY: `len` bytes from `start` are mapped, zeroed, and live until drop.
            unsafe { std::slice::from_raw_parts(self.start, self.len) }
        }

        pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
            // SAFETY: as in `bytes`, and `&mut self` is exclusive.
            unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: mapped in `new` with this size, and no borrow of it outlives `self`.
            unsafe { libc::munmap(self.base, self.mapped) };
        }
    }

    // SAFETY: the mapping is owned like the buffer of a `Vec<u8>`.
    unsafe impl Send for Mapping {}
    // SAFETY: shared access only reads, as for a `Vec<u8>`.
    unsafe impl Sync for Mapping {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_buffer_is_zero_and_keeps_writes() {
        for len in [0, 1, 1000, (2 << 20) + 3] {
            let mut floats = ZeroedBuffer::<f32>::new(len);
            assert_eq!(floats.len(), len);
            assert!(floats.iter().all(|float| *float == 0.0));
            floats.fill(1.5);
            assert!(floats.iter().all(|float| *float == 1.5));
        }
    }

    #[test]
    fn memory_is_zero_aligned_and_writable_at_any_size() {
        for len in [0, 1, 64, 65, 5000, (2 << 20) - 1, (2 << 20) + 1, 5 << 20] {
            let mut memory = AlignedBytes::zeroed(len);
            assert_eq!(memory.len(), len.next_multiple_of(LINE));
            assert!(memory.as_ptr().addr().is_multiple_of(LINE));
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }
}
