//! Loops on vectors of NEON.

use crate::arch::int8_dot::neon::{sdot_lane, smmla};
use crate::arch::prefetch::prefetch_nearest;
use core::arch::aarch64::*;
use std::hint::black_box;

/// Prefetch distance in bytes.
const AHEAD: usize = 2048;

/// The sum of the u64 words of all whole chunks of 128 bytes.
#[target_feature(enable = "neon")]
pub(crate) fn read_neon(bytes: &[u8]) -> u64 {
    let mut sums = [vdupq_n_u64(0); 8];
    for chunk in bytes.chunks_exact(128) {
        let at = chunk.as_ptr();
        prefetch_nearest(at.wrapping_add(AHEAD));
        prefetch_nearest(at.wrapping_add(AHEAD + 64));
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a chunk has eight vectors of 16 bytes.
            let vector = unsafe { vreinterpretq_u64_u8(vld1q_u8(at.add(16 * i))) };
            *sum = vaddq_u64(*sum, vector);
        }
    }
    let sum = sums.iter().fold(vdupq_n_u64(0), |a, b| vaddq_u64(a, *b));
    vaddvq_u64(sum)
}

#[target_feature(enable = "neon")]
pub(crate) fn f32_neon<const CHAINS: usize>(rounds: u64) {
    let (a, b) = black_box((vdupq_n_f32(1.000_001), vdupq_n_f32(0.25)));
    let mut sums = [vdupq_n_f32(0.5); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = vfmaq_f32(*sum, a, b);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "neon")]
pub(crate) fn int8_neon<const CHAINS: usize>(rounds: u64) {
    let b = black_box(vdupq_n_s8(5));
    let mut sums = [vdupq_n_s32(1); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            // The sum is an operand, since a loop-invariant product would be computed once.
            let a = vreinterpretq_s8_s32(*sum);
            let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
            *sum = vpadalq_s16(*sum, vpaddq_s16(low, vmull_high_s8(a, b)));
        }
    }
    black_box(sums);
}

#[target_feature(enable = "neon,dotprod")]
pub(crate) fn int8_neon_dotprod<const CHAINS: usize>(rounds: u64) {
    let (a, b) = black_box((vdupq_n_s8(3), vdupq_n_s8(5)));
    let mut sums = [vdupq_n_s32(1); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            // SAFETY: compiled for the level.
            *sum = unsafe { sdot_lane::<0>(*sum, a, b) };
        }
    }
    black_box(sums);
}

#[target_feature(enable = "neon,dotprod,i8mm")]
pub(crate) fn int8_neon_i8mm<const CHAINS: usize>(rounds: u64) {
    let (a, b) = black_box((vdupq_n_s8(3), vdupq_n_s8(5)));
    let mut sums = [vdupq_n_s32(1); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            // SAFETY: compiled for the level.
            *sum = unsafe { smmla(*sum, a, b) };
        }
    }
    black_box(sums);
}
