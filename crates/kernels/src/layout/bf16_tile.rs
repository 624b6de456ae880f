//! Rounding rows of activations to bf16 tiles.

use super::activation_block::ActivationBlock;
use crate::packing::BLOCK;

/// 32 columns of a row as bf16, one cache line.
pub(crate) type Bf16Line = [u16; BLOCK];

/// Reinterprets a line of bf16 as the bytes of a block, which share one buffer.
pub(crate) fn as_activation_block(halves: Bf16Line) -> ActivationBlock {
    #[expect(unsafe_code, reason = "plain bytes")]
    // SAFETY: both types are 64 bytes without padding, and any bytes are valid.
    unsafe {
        std::mem::transmute::<Bf16Line, ActivationBlock>(halves)
    }
}

/// Rounds part of a row to bf16, to nearest, ties to even, and passes each block to `put`. Missing columns are
/// zero.
///
/// Scalar code that the compiler vectorizes.
#[inline(always)]
pub(crate) fn round_to_bf16(x: &[f32], blocks: usize, mut put: impl FnMut(usize, Bf16Line)) {
    let (whole, rest) = x.as_chunks::<BLOCK>();
    for i in 0..blocks {
        let mut part = [0.0; BLOCK];
        let x = match whole.get(i) {
            Some(x) => x,
            None => {
                if i == whole.len() {
                    part[..rest.len()].copy_from_slice(rest);
                }
                &part
            }
        };
        put(i, x.map(nearest));
    }
}

/// The bits of the nearest bf16, ties to even.
#[inline(always)]
fn nearest(x: f32) -> u16 {
    const NAN: u16 = 0x7fc0;
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = (bits.wrapping_add(0x7fff + even) >> 16) as u16;
    if x.is_nan() { NAN } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn halves_are_the_nearest_bf16() {
        let mut bits = 1u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(bits);
            let half = bf16::from_bits(nearest(x));
            let same = half == bf16::from_f32(x) || (x.is_nan() && half.is_nan());
            assert!(same, "{x}: {half}");
        }
    }
}
