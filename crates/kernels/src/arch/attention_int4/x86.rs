//! Sign extension of nibbles with AVX2 and AVX-512.

use super::NibbleLanes;
use crate::arch::lanes::{F32x8, F32x16};
use core::arch::x86_64::{
    _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_srli_epi16, _mm256_storeu_si256,
    _mm256_sub_epi8, _mm256_xor_si256, _mm512_and_si512, _mm512_loadu_si512, _mm512_set1_epi8,
    _mm512_srli_epi16, _mm512_storeu_si512, _mm512_sub_epi8, _mm512_xor_si512,
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
