//! An allocator that counts what all threads but those that say so take and hold.
#![allow(unsafe_code, reason = "a global allocator cannot be written without")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

thread_local! {
    static LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

static TAKEN: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicI64 = AtomicI64::new(0);
static MOST_HELD: AtomicI64 = AtomicI64::new(0);

/// From now on what this thread takes and gives back does not count.
pub(crate) fn leave_this_thread_out() {
    LEFT_OUT.with(|out| out.set(true));
}

/// Allocations so far, growing in place included.
pub(crate) fn allocations() -> u64 {
    TAKEN.load(Ordering::SeqCst)
}

/// Bytes taken and not given back.
pub(crate) fn held() -> i64 {
    HELD.load(Ordering::SeqCst)
}

/// The most bytes that were held since this was asked last.
pub(crate) fn most_held() -> i64 {
    MOST_HELD.swap(held(), Ordering::SeqCst)
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(taken: u64, bytes: i64) {
    // A thread that is being torn down has no flag any more, and counts.
    if !LEFT_OUT.try_with(Cell::get).unwrap_or(false) {
        TAKEN.fetch_add(taken, Ordering::Relaxed);
        let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
        MOST_HELD.fetch_max(held, Ordering::Relaxed);
    }
}

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}
