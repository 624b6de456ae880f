//! The limits' loops with vectors.

use crate::isa::Level;
use crate::probe::{Arithmetic, CHAINS, scalar_read};
use core::arch::x86_64::*;
use std::hint::black_box;

/// How far ahead lines are asked for.
const AHEAD: usize = 2048;

/// As the scalar twin, with the level's vectors.
pub(crate) fn read(level: Level, bytes: &[u8]) -> u64 {
    match level {
        Level::Scalar => scalar_read(bytes),
        // SAFETY: a level is only ever held where an Isa proved it.
        Level::Avx2 | Level::AvxVnni => unsafe { read_avx2(bytes) },
        // SAFETY: as above.
        Level::Avx512 => unsafe { read_avx512(bytes) },
    }
}

/// Operations done.
pub(crate) fn arithmetic(level: Level, what: Arithmetic, rounds: u64) -> u64 {
    let lanes = match level {
        Level::Scalar => 1,
        Level::Avx2 | Level::AvxVnni => 8,
        Level::Avx512 => 16,
    };
    match (level, what) {
        (Level::Scalar, _) => return 0,
        // SAFETY: a level is only ever held where an Isa proved it.
        (Level::Avx2 | Level::AvxVnni, Arithmetic::F32) => unsafe { f32_avx2(rounds) },
        // SAFETY: as above.
        (Level::Avx2, Arithmetic::Int8) => unsafe { int8_avx2(rounds) },
        // SAFETY: as above.
        (Level::AvxVnni, Arithmetic::Int8) => unsafe { int8_avx_vnni(rounds) },
        // SAFETY: as above.
        (Level::Avx512, Arithmetic::F32) => unsafe { f32_avx512(rounds) },
        // SAFETY: as above.
        (Level::Avx512, Arithmetic::Int8) => unsafe { int8_avx512(rounds) },
    }
    let products = match what {
        Arithmetic::F32 => lanes,
        Arithmetic::Int8 => 4 * lanes,
    };
    2 * products * CHAINS as u64 * rounds
}

#[target_feature(enable = "avx2")]
fn read_avx2(bytes: &[u8]) -> u64 {
    let mut sums = [_mm256_setzero_si256(); 8];
    let chunks = bytes.chunks_exact(256);
    let rest = chunks.remainder();
    for chunk in chunks {
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
    words
        .iter()
        .fold(scalar_read(rest), |a, b| a.wrapping_add(*b))
}

#[target_feature(enable = "avx512f")]
fn read_avx512(bytes: &[u8]) -> u64 {
    let mut sums = [_mm512_setzero_si512(); 8];
    let chunks = bytes.chunks_exact(512);
    let rest = chunks.remainder();
    for chunk in chunks {
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
    (_mm512_reduce_add_epi64(sum) as u64).wrapping_add(scalar_read(rest))
}

#[target_feature(enable = "avx2,fma")]
fn f32_avx2(rounds: u64) {
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
fn f32_avx512(rounds: u64) {
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
fn int8_avx2(rounds: u64) {
    let (b, ones) = black_box((_mm256_set1_epi8(5), _mm256_set1_epi16(1)));
    let mut sums = [_mm256_set1_epi32(1); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            // Of the sum itself: a product that stays the same would be computed once.
            let pairs = _mm256_maddubs_epi16(*sum, b);
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx2,avxvnni")]
fn int8_avx_vnni(rounds: u64) {
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
fn int8_avx512(rounds: u64) {
    let (a, b) = black_box((_mm512_set1_epi8(3), _mm512_set1_epi8(5)));
    let mut sums = [_mm512_set1_epi32(1); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, a, b);
        }
    }
    black_box(sums);
}
