//! Law 3: after warm-up a forward pass allocates nothing.

#![allow(unsafe_code, reason = "an allocator can only be counted by being one")]

mod support;

use model::{Batch, Forward, Want};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{ids, load, pages};

/// One without an allocation is enough: what a pass allocates, it allocates in each.
const ROUNDS: usize = 4;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

// One test only: others in this binary would be counted too.
#[test]
fn a_forward_pass_allocates_nothing() {
    for case in [
        "x preset=small-gemma3 mix=Q4_K_M",
        "x preset=tiny-qwen2 mix=F32",
    ] {
        let mut model = load(case, 2);
        let vocab = model.dims().vocab;
        let (prompt, tables) = (ids(1, 48, vocab), [pages(0, 64), pages(8, 64)]);
        let mut batch = Batch::default();
        let mut step = |position: usize, rows: usize, want| {
            batch.clear();
            batch.push(&prompt[..rows], position, &tables[0], want);
            batch.push(&prompt[..1], position, &tables[1], Want::Last);
            model.forward(&batch).map(|logits| logits.len())
        };
        step(0, 48, Want::All).unwrap();
        // The test harness's own thread may allocate while it begins to wait: once, not in every round.
        let mut round = || {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for position in 0..16 {
                step(position, 1, Want::Last).unwrap();
                step(position, 48, Want::None).unwrap();
                step(position, 48, Want::All).unwrap();
            }
            ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        let fewest = (0..ROUNDS).map(|_| round()).min();
        assert_eq!(fewest, Some(0), "{case}");
    }
}
