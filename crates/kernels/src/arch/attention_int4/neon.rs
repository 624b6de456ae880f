//! Sign extension of nibbles with NEON.

use super::NibbleLanes;
use crate::arch::lanes::NeonF32x8;
use core::arch::aarch64::{vld1q_s8, vshlq_n_s8, vshrq_n_s8, vst1q_s8};

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid). The arithmetic shift to the
// right extends the sign.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl<const DOTPROD: bool> NibbleLanes for NeonF32x8<DOTPROD> {
    const BYTES: usize = 16;
    #[inline(always)]
    unsafe fn unpack_vector(from: *const u8, low: *mut i8, high: *mut i8) {
        unsafe {
            let bytes = vld1q_s8(from.cast());
            vst1q_s8(low, vshrq_n_s8::<4>(vshlq_n_s8::<4>(bytes)));
            vst1q_s8(high, vshrq_n_s8::<4>(bytes));
        }
    }
}
