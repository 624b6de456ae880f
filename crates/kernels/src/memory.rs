//! ZeroedBuffer memory in whole cache lines, in large pages where the system agrees.
#![allow(unsafe_code)] // Memory straight from the system: only a mapping can be advised before its first touch.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Bytes of a cache line; what packed weights are aligned to.
pub(crate) const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([u8; LINE]);

/// Bytes at a 64-byte boundary.
pub(crate) struct AlignedBytes(Backing);

/// Elements of which zero bytes, and any others, make a valid one, without gaps.
///
/// # Safety
/// That is so, and the alignment is at most [`LINE`].
pub unsafe trait Pod: Copy {}

// SAFETY: any four bytes are an f32.
unsafe impl Pod for f32 {}
// SAFETY: any two bytes are a u16.
unsafe impl Pod for u16 {}

/// A fixed number of elements, zero at first, in large pages where there are enough and the system
/// agrees: what a batch is worked in is swept through from end to end.
pub struct ZeroedBuffer<T> {
    memory: AlignedBytes,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> ZeroedBuffer<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// If their bytes cannot be counted.
    pub fn new(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).expect("bytes are counted");
        Self {
            memory: AlignedBytes::zeroed(bytes),
            len,
            elements: PhantomData,
        }
    }
}

impl<T: Pod> Deref for ZeroedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were asked for, at a line's boundary; any bytes are valid elements.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
}

impl<T: Pod> DerefMut for ZeroedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), self.len) }
    }
}

enum Backing {
    Small(Vec<CacheLine>),
    #[cfg(target_os = "linux")]
    Large(large::Mapping),
}

impl AlignedBytes {
    /// At least `len` zero bytes, rounded up to whole lines.
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
    /// A large page of the usual processors. Weights are read once per token, so that misses of
    /// the address cache cost a tenth of the bandwidth with small pages.
    const PAGE: usize = 2 << 20;
    /// Memory from this size on is mapped by itself.
    pub(super) const FROM_BYTES: usize = PAGE;

    /// An anonymous mapping with its own start at a large page's boundary.
    pub(super) struct Mapping {
        base: *mut libc::c_void,
        mapped: usize,
        start: *mut u8,
        len: usize,
    }

    impl Mapping {
        /// `len` zero bytes; none if the system refuses.
        pub(super) fn new(len: usize) -> Option<Self> {
            // The slack before and after is never touched, so it costs addresses only.
            let mapped = len.checked_next_multiple_of(PAGE)?.checked_add(PAGE)?;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping at a place of the system's choice touches no memory of ours.
            let base =
                unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
            if base == libc::MAP_FAILED {
                return None;
            }
            let start = base
                .cast::<u8>()
                .wrapping_add(base.cast::<u8>().align_offset(PAGE));
            let whole_pages = len / PAGE * PAGE;
            // The rest keeps small pages, or each matrix would cost a large page more than it needs.
            // SAFETY: within the new mapping. The advice may be refused: then pages are small.
            unsafe { libc::madvise(start.cast(), whole_pages, libc::MADV_HUGEPAGE) };
            Some(Self {
                base,
                mapped,
                start,
                len,
            })
        }

        pub(super) fn bytes(&self) -> &[u8] {
            // SAFETY: `len` bytes from `start` are mapped, zeroed, and live until drop.
            unsafe { std::slice::from_raw_parts(self.start, self.len) }
        }

        pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
            // SAFETY: as in `bytes`; `&mut self` makes it exclusive.
            unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: mapped in `new` with this size, and no borrow of it outlives `self`.
            unsafe { libc::munmap(self.base, self.mapped) };
        }
    }

    // SAFETY: it owns its memory as a `Vec<u8>` does.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_elements_are_zero_and_keep_what_is_written() {
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
