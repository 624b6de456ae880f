//! Outputs that are written past the caches.

use super::{Random, batch_invariant_isas, difference, pack, product};
use crate::matmul::STREAMED_BYTES;
use crate::{Activations, Format, Isa, Pool, ZeroedBuffer, matmul};

const COLS: usize = 64;

/// Rows that end at a cache line and rows that do not, in outputs that begin at one and in others.
#[test]
fn large_outputs_match_the_reference_bits() {
    let mut random = Random(14);
    for (format, rows) in [(Format::Q8_0, 4096), (Format::F16, 4100)] {
        let batch = STREAMED_BYTES.div_ceil(size_of::<f32>() * rows);
        let raw = random.raw(format, rows * COLS);
        let x = random.floats(batch * COLS);
        let w = pack(Isa::scalar(), format, rows, COLS, &raw);
        let reference = product(&w, 2, Isa::scalar(), &x);
        for isa in batch_invariant_isas() {
            let w = pack(isa, format, rows, COLS, &raw);
            let pool = &mut Pool::new(2);
            let mut activations = Activations::new(batch, COLS);
            activations.load(isa, pool, &x, batch, COLS);
            for first in [0, 1] {
                let mut out = ZeroedBuffer::new(first + batch * rows);
                matmul(pool, &w, &activations, &mut out[first..]);
                let different = difference(&out[first..], &reference);
                assert_eq!(different, None, "{format:?} {isa} from {first}");
            }
        }
    }
}
