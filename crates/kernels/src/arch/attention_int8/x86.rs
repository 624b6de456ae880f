//! [`QuantLanes`] of AVX2 and AVX-512.

use super::{LINES_PER_QUAD, QuantLanes, ScaleGroupView};
use crate::arch::lanes::{F32x8, F32x16, Lanes};
use crate::arch::prefetch::Prefetcher;
use crate::layout::{QUERY_LOW_BITS, QUERY_OFFSET};
use core::arch::x86_64::{
    __m256i, __m512i, _mm_loadl_epi64, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_hadd_epi32, _mm256_madd_epi16,
    _mm256_permute4x64_epi64, _mm256_set1_epi64x, _mm256_setzero_si256, _mm512_add_epi32,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_loadu_si512,
    _mm512_set1_epi8, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_slli_epi32, _mm512_sub_epi32,
};

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl QuantLanes for F32x8 {
    #[inline(always)]
    unsafe fn dot_scale_group<const N: usize, const P: usize>(
        at: ScaleGroupView,
        prefetcher: &mut Prefetcher,
    ) -> [[Self; P]; N] {
        unsafe {
            // Each half holds pairs of two slots: four slots to a vector.
            let mut sums = [[[_mm256_setzero_si256(); 2]; P]; N];
            for quad in 0..at.quads {
                (0..LINES_PER_QUAD).for_each(|_| prefetcher.next_line());
                let keys = at.keys.add(quad * at.slots * 4);
                for p in 0..P {
                    let keys = keys.add(p * 32);
                    let keys = [
                        _mm256_cvtepi8_epi16(_mm_loadu_si128(keys.cast())),
                        _mm256_cvtepi8_epi16(_mm_loadu_si128(keys.add(16).cast())),
                    ];
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let query = at.queries.add(i * at.elements + quad * 4);
                        let query = _mm256_set1_epi64x(query.cast::<i64>().read_unaligned());
                        for (sum, keys) in sums[p].iter_mut().zip(keys) {
                            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(keys, query));
                        }
                    }
                }
            }
            sums.map(|sums| sums.map(|[a, b]| Self::from_ints(ordered_pair_sums(a, b))))
        }
    }
    #[inline(always)]
    unsafe fn load_quants(from: *const i8) -> Self {
        unsafe { Self::from_ints(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))) }
    }
}

impl F32x8 {
    #[inline(always)]
    unsafe fn from_ints(ints: __m256i) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_cvtepi32_ps(ints) })
    }
}

impl F32x16 {
    #[inline(always)]
    unsafe fn from_ints(ints: __m512i) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_cvtepi32_ps(ints) })
    }
}

/// Adds the pairs of slots 0 to 3 in `a` and of slots 4 to 7 in `b`, and orders the sums by slot.
#[inline(always)]
unsafe fn ordered_pair_sums(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(a, b)) }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl QuantLanes for F32x16 {
    #[inline(always)]
    unsafe fn dot_scale_group<const N: usize, const P: usize>(
        at: ScaleGroupView,
        prefetcher: &mut Prefetcher,
    ) -> [[Self; P]; N] {
        unsafe {
            let zero = _mm512_setzero_si512();
            let (mut high, mut low, mut keys_sum) = ([[zero; P]; N], [[zero; P]; N], [zero; P]);
            let ones = _mm512_set1_epi8(1);
            for quad in 0..at.quads {
                (0..LINES_PER_QUAD).for_each(|_| prefetcher.next_line());
                let keys = at.keys.add(quad * at.slots * 4);
                let mut key = [zero; P];
                for p in 0..P {
                    key[p] = _mm512_loadu_si512(keys.add(p * 64).cast());
                    keys_sum[p] = _mm512_dpbusd_epi32(keys_sum[p], ones, key[p]);
                }
                for i in 0..N {
                    let planes = at
                        .planes
                        .add((i * at.elements + quad * 4) * 2)
                        .cast::<i32>();
                    let upper = _mm512_set1_epi32(planes.read_unaligned());
                    let lower = _mm512_set1_epi32(planes.add(1).read_unaligned());
                    for p in 0..P {
                        high[i][p] = _mm512_dpbusd_epi32(high[i][p], upper, key[p]);
                        low[i][p] = _mm512_dpbusd_epi32(low[i][p], lower, key[p]);
                    }
                }
            }
            let mut dots = [[Self::splat(0.0); P]; N];
            for p in 0..P {
                let offset = _mm512_slli_epi32::<{ QUERY_OFFSET.ilog2() }>(keys_sum[p]);
                for i in 0..N {
                    let high = _mm512_slli_epi32::<QUERY_LOW_BITS>(high[i][p]);
                    let sum = _mm512_add_epi32(high, low[i][p]);
                    dots[i][p] = Self::from_ints(_mm512_sub_epi32(sum, offset));
                }
            }
            dots
        }
    }
    #[inline(always)]
    unsafe fn load_quants(from: *const i8) -> Self {
        unsafe { Self::from_ints(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }
}
