//! Loops on vectors that measure the limits of the machine.

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::*;

#[cfg(target_arch = "aarch64")]
mod neon {
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
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Loops on vectors of x86-64.

    use core::arch::x86_64::*;
    use std::hint::black_box;

    /// Prefetch distance in bytes.
    const AHEAD: usize = 2048;

    /// The sum of the u64 words of all whole chunks of 256 bytes.
    #[target_feature(enable = "avx2")]
    pub(crate) fn read_avx2(bytes: &[u8]) -> u64 {
        let mut sums = [_mm256_setzero_si256(); 8];
        for chunk in bytes.chunks_exact(256) {
            let at = chunk.as_ptr();
            for line in 0..4 {
                _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(AHEAD + 64 * line).cast());
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: a chunk has eight vectors of 32 bytes.
                let vector = unsafe { _mm256_loadu_si256(at.add(32 * i).cast()) };
                *sum = _mm256_add_epi64(*sum, vector);
            }
        }
        let sum = sums
            .iter()
            .fold(_mm256_setzero_si256(), |a, b| _mm256_add_epi64(a, *b));
        let mut words = [0u64; 4];
        // SAFETY: the array has 32 bytes.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sum) };
        words.iter().fold(0, |a: u64, b| a.wrapping_add(*b))
    }

    /// The sum of the u64 words of all whole chunks of 512 bytes.
    #[target_feature(enable = "avx512f")]
    pub(crate) fn read_avx512(bytes: &[u8]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); 8];
        for chunk in bytes.chunks_exact(512) {
            let at = chunk.as_ptr();
            for line in 0..8 {
                _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(AHEAD + 64 * line).cast());
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: a chunk has eight vectors of 64 bytes.
                let vector = unsafe { _mm512_loadu_si512(at.add(64 * i).cast()) };
                *sum = _mm512_add_epi64(*sum, vector);
            }
        }
        let sum = sums
            .iter()
            .fold(_mm512_setzero_si512(), |a, b| _mm512_add_epi64(a, *b));
        _mm512_reduce_add_epi64(sum) as u64
    }

    #[target_feature(enable = "avx2,fma")]
    pub(crate) fn f32_avx2<const CHAINS: usize>(rounds: u64) {
        let (a, b) = black_box((_mm256_set1_ps(1.000_001), _mm256_set1_ps(0.25)));
        let mut sums = [_mm256_set1_ps(0.5); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, *sum, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub(crate) fn f32_avx512<const CHAINS: usize>(rounds: u64) {
        let (a, b) = black_box((_mm512_set1_ps(1.000_001), _mm512_set1_ps(0.25)));
        let mut sums = [_mm512_set1_ps(0.5); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, *sum, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2")]
    pub(crate) fn int8_avx2<const CHAINS: usize>(rounds: u64) {
        let (b, ones) = black_box((_mm256_set1_epi8(5), _mm256_set1_epi16(1)));
        let mut sums = [_mm256_set1_epi32(1); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                // The sum is an operand, since a loop-invariant product would be computed once.
                let pairs = _mm256_maddubs_epi16(*sum, b);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,avxvnni")]
    pub(crate) fn int8_avx_vnni<const CHAINS: usize>(rounds: u64) {
        let (a, b) = black_box((_mm256_set1_epi8(3), _mm256_set1_epi8(5)));
        let mut sums = [_mm256_set1_epi32(1); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_dpbusd_avx_epi32(*sum, a, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(crate) fn int8_avx512<const CHAINS: usize>(rounds: u64) {
        let (a, b) = black_box((_mm512_set1_epi8(3), _mm512_set1_epi8(5)));
        let mut sums = [_mm512_set1_epi32(1); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        black_box(sums);
    }
}
