//! Int8 dot products of AVX2, AVX-VNNI and AVX-512.

use super::{AddProducts, Int8Dot};
use crate::arch::packed_block::by_distance;
use crate::layout::activation_block::{ActivationBlock, MAGIC_BITS, ZERO_POINT_LOG2};
use crate::packing::GROUPS;
use core::arch::x86_64::*;

/// Four columns of activations.
#[inline(always)]
unsafe fn load_four(x: *const i8, group: usize) -> i32 {
    // SAFETY: guaranteed by the caller; a block has eight groups.
    unsafe { x.add(4 * group).cast::<i32>().read_unaligned() }
}

/// How many sums of two products, of quants of `bits` bits and activations, fit 16 bits together. Quants of 8 bits
/// count from -128.
pub(crate) const fn sums_in_i16(bits: usize) -> usize {
    if bits == 8 {
        1
    } else {
        i16::MAX as usize / (((1 << bits) - 1) * 127 * 2)
    }
}

/// AVX2, eight rows; with `VNNI` the byte products of AVX-VNNI.
pub(crate) struct EightRows<const VNNI: bool>;

/// AVX2.
pub(crate) type Avx2 = EightRows<false>;

/// AVX2 with AVX-VNNI.
pub(crate) type AvxVnni = EightRows<true>;

/// AVX-512 with VNNI, sixteen rows.
pub(crate) struct Avx512;

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl Int8Dot for Avx512 {
    const ROWS: usize = 16;
    type F = __m512;
    type Ints = __m512i;
    const ALIGNS_ZERO_POINT: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn initial_sum(
        x: &ActivationBlock,
        sum_index: usize,
        zero_log2: Option<u32>,
        _bits: usize,
    ) -> __m512i {
        let start = match zero_log2 {
            Some(_) => x.initial_sums[sum_index],
            None => MAGIC_BITS,
        };
        unsafe { _mm512_set1_epi32(start) }
    }
    #[inline(always)]
    unsafe fn shift_right_mask(v: __m512i, right: usize, mask: u8) -> __m512i {
        unsafe {
            let v = by_distance!(_mm512_srli_epi16, v, right);
            _mm512_and_si512(v, _mm512_set1_epi8(mask as i8))
        }
    }
    #[inline(always)]
    unsafe fn shift_left_mask(v: __m512i, left: usize, mask: u8) -> __m512i {
        unsafe {
            let v = by_distance!(_mm512_slli_epi16, v, left);
            _mm512_and_si512(v, _mm512_set1_epi8(mask as i8))
        }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], bytes: __m512i) -> __m512i {
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), bytes)
        }
    }
    #[inline(always)]
    unsafe fn dot_groups(
        start: __m512i,
        quants: &[__m512i; GROUPS],
        (from, to): (usize, usize),
        x: *const i8,
        _bits: usize,
    ) -> __m512i {
        let mut sum = start;
        for (group, quants) in (from..to).zip(&quants[from..to]) {
            unsafe {
                sum = Self::add_products(sum, *quants, load_four(x, group));
            }
        }
        sum
    }
    #[inline(always)]
    unsafe fn scaled_sum(sum: __m512i, x: &ActivationBlock) -> __m512 {
        unsafe {
            let (scale, minus_magic) = (_mm512_set1_ps(x.scale), _mm512_set1_ps(x.minus_magic));
            _mm512_fmadd_ps(_mm512_castsi512_ps(sum), scale, minus_magic)
        }
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (__m512, __m512) {
        unsafe {
            let both = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            let low = _mm512_and_si512(both, _mm512_set1_epi32(15));
            (
                _mm512_cvtepi32_ps(low),
                _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(both)),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> __m512 {
        unsafe { _mm512_loadu_ps(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn store(v: __m512, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, v) }
    }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl<const VNNI: bool> Int8Dot for EightRows<VNNI> {
    const ROWS: usize = 8;
    type F = __m256;
    type Ints = __m256i;
    const ALIGNS_ZERO_POINT: bool = VNNI;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn initial_sum(
        x: &ActivationBlock,
        sum_index: usize,
        zero_log2: Option<u32>,
        bits: usize,
    ) -> __m256i {
        unsafe {
            match zero_log2 {
                Some(_) if VNNI => _mm256_set1_epi32(x.initial_sums[sum_index]),
                None if VNNI => _mm256_set1_epi32(MAGIC_BITS),
                // `dot_groups` itself subtracts 128 from bytes.
                Some(log2) if bits < 8 => {
                    let shifted = _mm256_set1_epi32(x.initial_sums[sum_index] - MAGIC_BITS);
                    by_distance!(_mm256_srai_epi32, shifted, ZERO_POINT_LOG2 - log2)
                }
                _ => _mm256_setzero_si256(),
            }
        }
    }
    #[inline(always)]
    unsafe fn shift_right_mask(v: __m256i, right: usize, mask: u8) -> __m256i {
        unsafe {
            let v = by_distance!(_mm256_srli_epi16, v, right);
            _mm256_and_si256(v, _mm256_set1_epi8(mask as i8))
        }
    }
    #[inline(always)]
    unsafe fn shift_left_mask(v: __m256i, left: usize, mask: u8) -> __m256i {
        unsafe {
            let v = by_distance!(_mm256_slli_epi16, v, left);
            _mm256_and_si256(v, _mm256_set1_epi8(mask as i8))
        }
    }
    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], bytes: __m256i) -> __m256i {
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), bytes)
        }
    }
    #[inline(always)]
    unsafe fn dot_groups(
        start: __m256i,
        quants: &[__m256i; GROUPS],
        (from, to): (usize, usize),
        x: *const i8,
        bits: usize,
    ) -> __m256i {
        if VNNI {
            let mut sum = start;
            for (group, quants) in (from..to).zip(&quants[from..to]) {
                unsafe {
                    sum = AvxVnni::add_products(sum, *quants, load_four(x, group));
                }
            }
            return sum;
        }
        let sums_in_i16 = sums_in_i16(bits);
        let mut sum = start;
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut pairs = _mm256_setzero_si256();
            for (group, &quants) in (from..to).zip(&quants[from..to]) {
                let x = _mm256_set1_epi32(load_four(x, group));
                let products = if bits == 8 {
                    // |quant - 128| is at most 128: two products with |x| <= 127 stay below 2^15.
                    let quant = _mm256_xor_si256(quants, _mm256_set1_epi8(-128));
                    _mm256_maddubs_epi16(_mm256_abs_epi8(quant), _mm256_sign_epi8(x, quant))
                } else {
                    _mm256_maddubs_epi16(quants, x)
                };
                pairs = _mm256_add_epi16(pairs, products);
                if (group + 1 - from).is_multiple_of(sums_in_i16) || group + 1 == to {
                    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
                    pairs = _mm256_setzero_si256();
                }
            }
        }
        sum
    }
    #[inline(always)]
    unsafe fn scaled_sum(sum: __m256i, x: &ActivationBlock) -> __m256 {
        unsafe {
            let scale = _mm256_set1_ps(x.scale);
            if VNNI {
                _mm256_fmadd_ps(
                    _mm256_castsi256_ps(sum),
                    scale,
                    _mm256_set1_ps(x.minus_magic),
                )
            } else {
                _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale)
            }
        }
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (__m256, __m256) {
        unsafe {
            let both = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let low = _mm256_and_si256(both, _mm256_set1_epi32(15));
            (
                _mm256_cvtepi32_ps(low),
                _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(both)),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m256 {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> __m256 {
        unsafe { _mm256_loadu_ps(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn store(v: __m256, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, v) }
    }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl AddProducts for Avx512 {
    #[inline(always)]
    unsafe fn add_products(sum: __m512i, quants: __m512i, x: i32) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(sum, quants, _mm512_set1_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn store_ints(v: __m512i, to: *mut u8) {
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl AddProducts for AvxVnni {
    #[inline(always)]
    unsafe fn add_products(sum: __m256i, quants: __m256i, x: i32) -> __m256i {
        unsafe { _mm256_dpbusd_avx_epi32(sum, quants, _mm256_set1_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn store_ints(v: __m256i, to: *mut u8) {
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }
}
