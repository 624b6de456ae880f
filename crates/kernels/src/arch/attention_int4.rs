//! Unpacking 4-bit keys and values for AVX2, AVX-512 and NEON. The reference implementation is `attention::int8`.
//!
//! # Safety
//! All functions: the processor has the level of `L`.

use super::lanes::Lanes;

/// Unpacking one vector of bytes.
///
/// # Safety
/// As [`Lanes`].
pub(crate) trait NibbleLanes: Lanes {
    /// Bytes of a vector.
    const BYTES: usize;
    /// Sign-extends the lower and the upper nibbles of [`Self::BYTES`] bytes.
    unsafe fn unpack_vector(from: *const u8, low: *mut i8, high: *mut i8);
}

/// Vector path of `attention::int8::scalar_nibbles`. The number of bytes is a multiple of 128: a page has at least 16 slots, and
/// a head 16 elements.
#[inline(always)]
pub(crate) unsafe fn unpack_nibbles<L: NibbleLanes>(
    packed: &[u8],
    low: &mut [i8],
    high: &mut [i8],
) {
    let bytes = packed.len();
    assert!(low.len() == bytes && high.len() == bytes && bytes.is_multiple_of(L::BYTES));
    for at in (0..bytes).step_by(L::BYTES) {
        // SAFETY: a vector from `at` on is within all three slices.
        unsafe {
            let from = packed.as_ptr().add(at);
            let (low, high) = (low.as_mut_ptr().add(at), high.as_mut_ptr().add(at));
            L::unpack_vector(from, low, high);
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
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
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Sign extension of nibbles with AVX2 and AVX-512.

    use super::NibbleLanes;
    use crate::arch::lanes::{F32x8, F32x16};
    use core::arch::x86_64::{
        _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_srli_epi16,
        _mm256_storeu_si256, _mm256_sub_epi8, _mm256_xor_si256, _mm512_and_si512,
        _mm512_loadu_si512, _mm512_set1_epi8, _mm512_srli_epi16, _mm512_storeu_si512,
        _mm512_sub_epi8, _mm512_xor_si512,
    };

    // SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid). A nibble `n` is
    // sign-extended as `(n ^ 8) - 8`.
    #[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
    impl NibbleLanes for F32x8 {
        const BYTES: usize = 32;
        #[inline(always)]
        unsafe fn unpack_vector(from: *const u8, low: *mut i8, high: *mut i8) {
            unsafe {
                let (mask, eight) = (_mm256_set1_epi8(15), _mm256_set1_epi8(8));
                let bytes = _mm256_loadu_si256(from.cast());
                let upper = _mm256_srli_epi16::<4>(bytes);
                for (nibbles, to) in [(bytes, low), (upper, high)] {
                    let nibbles = _mm256_and_si256(nibbles, mask);
                    let quants = _mm256_sub_epi8(_mm256_xor_si256(nibbles, eight), eight);
                    _mm256_storeu_si256(to.cast(), quants);
                }
            }
        }
    }

    // SAFETY of all blocks: as for AVX2.
    #[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
    impl NibbleLanes for F32x16 {
        const BYTES: usize = 64;
        #[inline(always)]
        unsafe fn unpack_vector(from: *const u8, low: *mut i8, high: *mut i8) {
            unsafe {
                let (mask, eight) = (_mm512_set1_epi8(15), _mm512_set1_epi8(8));
                let bytes = _mm512_loadu_si512(from.cast());
                let upper = _mm512_srli_epi16::<4>(bytes);
                for (nibbles, to) in [(bytes, low), (upper, high)] {
                    let nibbles = _mm512_and_si512(nibbles, mask);
                    let quants = _mm512_sub_epi8(_mm512_xor_si512(nibbles, eight), eight);
                    _mm512_storeu_si512(to.cast(), quants);
                }
            }
        }
    }
}
