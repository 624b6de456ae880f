//! A global allocator that counts: per thread, for a group of threads, and for the whole process.
//!
//! A test binary declares the allocator once:
//! `#[global_allocator] static ALLOCATOR: CountingAllocator = CountingAllocator;`. Tests that read the process's counts
//! run in a process of their own ([`crate::child`]).
#![allow(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

thread_local! {
    static THREAD: ThreadCounts = const { ThreadCounts::new() };
}

static PROCESS_IS_COUNTED: AtomicBool = AtomicBool::new(false);
static PROCESS_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static PROCESS_HELD: AtomicI64 = AtomicI64::new(0);
static PROCESS_PEAK: AtomicI64 = AtomicI64::new(0);

struct ThreadCounts {
    allocations: Cell<u64>,
    held: Cell<i64>,
    peak: Cell<i64>,
    group: Cell<Option<&'static AtomicU64>>,
    is_excluded: Cell<bool>,
}

impl ThreadCounts {
    const fn new() -> Self {
        Self {
            allocations: Cell::new(0),
            held: Cell::new(0),
            peak: Cell::new(0),
            group: Cell::new(None),
            is_excluded: Cell::new(false),
        }
    }
}

/// Allocations of this thread so far, growing in place included.
pub fn thread_allocations() -> u64 {
    THREAD.with(|thread| thread.allocations.get())
}

/// Bytes that this thread allocated, less those that it freed.
pub fn thread_held() -> i64 {
    THREAD.with(|thread| thread.held.get())
}

/// The most bytes that this thread held since the last call. While an allocation grows, both its old and its new size
/// count.
pub fn take_thread_peak() -> i64 {
    THREAD.with(|thread| thread.peak.replace(thread.held.get()))
}

/// From now on `group` also counts the allocations of this thread.
pub fn count_thread_in(group: &'static AtomicU64) {
    THREAD.with(|thread| thread.group.set(Some(group)));
}

/// Begins to count for the whole process.
pub fn count_process() {
    PROCESS_IS_COUNTED.store(true, Ordering::SeqCst);
}

/// Begins to count for the whole process, without this thread.
pub fn count_process_without_this_thread() {
    THREAD.with(|thread| thread.is_excluded.set(true));
    count_process();
}

/// Allocations of the process since counting began, growing in place included.
pub fn process_allocations() -> u64 {
    PROCESS_ALLOCATIONS.load(Ordering::SeqCst)
}

/// Bytes that the process allocated, less those that it freed, since counting began.
pub fn process_held() -> i64 {
    PROCESS_HELD.load(Ordering::SeqCst)
}

/// The most bytes that the process held since the last call.
pub fn take_process_peak() -> i64 {
    PROCESS_PEAK.swap(process_held(), Ordering::SeqCst)
}

/// The system's allocator, which counts.
#[derive(Debug)]
pub struct CountingAllocator;

impl CountingAllocator {
    fn count(allocations: u64, allocated: usize, freed: usize) {
        let bytes = allocated as i64 - freed as i64;
        let counted = THREAD.try_with(|thread| {
            thread
                .allocations
                .set(thread.allocations.get() + allocations);
            let held = thread.held.get();
            let peak = thread.peak.get().max(held + allocated as i64);
            thread.peak.set(peak);
            thread.held.set(held + bytes);
            if let Some(group) = thread.group.get() {
                group.fetch_add(allocations, Ordering::Relaxed);
            }
            thread.is_excluded.get()
        });
        if PROCESS_IS_COUNTED.load(Ordering::Relaxed) && !counted.unwrap_or(false) {
            PROCESS_ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
            let held = PROCESS_HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
            PROCESS_PEAK.fetch_max(held, Ordering::Relaxed);
        }
    }
}

// SAFETY: each call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(1, layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        Self::count(0, 0, layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count(1, size, layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(start, layout, size) }
    }
}
