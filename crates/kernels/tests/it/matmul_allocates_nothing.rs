//! Loading activations and multiplying allocate nothing.

use kernels::{Activations, Format, Isa, Matrix, Pool, matmul, quantize};
use std::sync::atomic::{AtomicU64, Ordering};
use testing::heap::count_thread_in;

/// Allocations of the test's thread and of the pool's.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[test]
fn load_and_matmul_allocate_nothing() {
    let (rows, cols) = (1024, 512);
    let weights = vec![0.5; rows * cols];
    let pool = &mut Pool::new(2);
    pool.run(|_| count_thread_in(&ALLOCATIONS));
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
