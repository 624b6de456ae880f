//! Activations are the only room a matmul needs: loading and multiplying allocate nothing.
#![allow(unsafe_code)] // A counting allocator.

use kernels::{Activations, Format, Isa, Matrix, Pool, matmul, quantize};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread's allocations count: the test's and its pool's do, the test harness's own do not.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: everything is the system's allocator's; a count is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn loading_and_multiplying_allocate_nothing() {
    let (rows, cols) = (1024, 512);
    let weights = vec![0.5; rows * cols];
    let pool = &mut Pool::new(2);
    pool.run(|_| COUNTS.set(true));
    for format in [Format::Q4_K, Format::Q8_0, Format::F16] {
        let raw = quantize(format, &weights);
        for isa in Isa::available() {
            let w = Matrix::pack(isa, pool, format, rows, cols, &raw).expect("the sizes agree");
            let mut activations = Activations::new(17, cols);
            let (x, mut out) = (vec![0.25; 17 * cols], vec![0.0; 17 * rows]);
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for batch in [1, 17, 3] {
                activations.load(isa, pool, &x[..batch * cols], batch, cols);
                matmul(pool, &w, &activations, &mut out[..batch * rows]);
            }
            assert_eq!(
                ALLOCATIONS.load(Ordering::Relaxed),
                before,
                "{format:?} {isa}"
            );
        }
    }
}
