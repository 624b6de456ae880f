//! 4-bit keys and values for attention: unpacked to int8, one page at a time.
//!
//! The unpacked quants are those of an int8 cache with the same scales, so the kernels of int8 attention compute the rest. A page
//! of a head has some kilobytes, which stay in the first-level cache.

use super::params::KV_SPLIT_SLOTS;
use crate::Isa;
use crate::dispatch::by_isa;
use crate::kv::{NibbleKv, QuantizedKv};

/// Buffer for the unpacked keys or values of one page.
pub(super) struct UnpackedPage {
    quants: Vec<i8>,
}

impl UnpackedPage {
    /// A buffer for pages of up to [`KV_SPLIT_SLOTS`] positions of `elements` elements.
    pub(super) fn new(elements: usize) -> Self {
        Self {
            quants: vec![0; KV_SPLIT_SLOTS * elements],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.quants.len()
    }

    /// The int8 form of keys or values.
    pub(super) fn unpack<'a>(&'a mut self, isa: Isa, packed: NibbleKv<'a>) -> QuantizedKv<'a> {
        let half = packed.nibbles.len();
        let quants = &mut self.quants[..2 * half];
        let (low, high) = quants.split_at_mut(half);
        unpack_nibbles(isa, packed.nibbles, low, high);
        QuantizedKv {
            quants,
            scales: packed.scales,
            memory: packed.memory,
        }
    }
}

/// The lower and the upper nibbles of `packed` as numbers from -8 to 7.
fn scalar_nibbles(packed: &[u8], low: &mut [i8], high: &mut [i8]) {
    let halves = low.iter_mut().zip(high);
    for ((low, high), packed) in halves.zip(packed) {
        *low = (packed << 4) as i8 >> 4;
        *high = *packed as i8 >> 4;
    }
}

by_isa! {
    scalar_nibbles, crate::arch::attention_int4::unpack_nibbles;
    fn unpack_nibbles(packed: &[u8], low: &mut [i8], high: &mut [i8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_nibbles_is_unpacked_on_every_level() {
        // As many bytes as the smallest page of the smallest head, and several times that.
        for bytes in [128, 256, 1024] {
            let packed: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 256) as u8).collect();
            let (mut low, mut high) = (vec![99; bytes], vec![99; bytes]);
            let page = NibbleKv {
                nibbles: &packed,
                scales: &[],
                memory: &[],
            };
            for isa in Isa::available() {
                unpack_nibbles(isa, &packed, &mut low, &mut high);
                for i in 0..bytes {
                    let want = (page.quant(i), page.quant(bytes + i));
                    assert_eq!((low[i], high[i]), want, "{isa}, byte {:#x}", packed[i]);
                }
            }
        }
        let bounds = NibbleKv {
            nibbles: &[0x78],
            scales: &[],
            memory: &[],
        };
        assert_eq!((bounds.quant(0), bounds.quant(1)), (-8, 7));
    }
}
