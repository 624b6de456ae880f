//! Loading activations and multiplying allocate nothing.
#![allow(unsafe_code)] // A counting allocator.

use kernels::{Activations, Format, Isa, Matrix, Pool, matmul, quantize};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether allocations of this thread count: those of the test and its pool, not of the test harness.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: forwards to the system allocator and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn load_and_matmul_allocate_nothing() {
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
