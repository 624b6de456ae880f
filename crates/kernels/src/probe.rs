//! Loops that measure the limits of the machine: memory reads, and arithmetic on registers. The caller times
//! them; the speeds of kernels are compared with these limits.

use crate::Isa;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::arch::probe as vectors;
use crate::isa::Level;

/// An arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Fused multiply-adds of f32.
    F32,
    /// Products of bytes, accumulated as i32.
    Int8,
}

/// Independent accumulators: more than latency times execution units of any processor.
const CHAINS: usize = 12;

/// Reads all bytes and sums them as little-endian u64 words (bytes after the last whole word are skipped), with
/// the access pattern of the matmul kernels: in order, with prefetches.
#[allow(unsafe_code, reason = "entering a fast path; the Isa is the proof")]
pub fn read(isa: Isa, bytes: &[u8]) -> u64 {
    let (sum, chunk): (u64, usize) = match isa.level() {
        Level::Scalar => return scalar_read(bytes),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx2 | Level::AvxVnni => (unsafe { vectors::read_avx2(bytes) }, 256),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => (unsafe { vectors::read_avx512(bytes) }, 512),
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the Isa proves the level.
        Level::Neon | Level::NeonDotprod | Level::NeonI8mm => {
            (unsafe { vectors::read_neon(bytes) }, 128)
        }
    };
    sum.wrapping_add(scalar_read(bytes.chunks_exact(chunk).remainder()))
}

/// Runs `rounds` rounds of [`Arithmetic`] on one core and returns the number of operations (multiply and add
/// count as two).
#[allow(unsafe_code, reason = "entering a fast path; the Isa is the proof")]
pub fn arithmetic(isa: Isa, what: Arithmetic, rounds: u64) -> u64 {
    let lanes = match (isa.level(), what) {
        (Level::Scalar, _) => return scalar_arithmetic(what, rounds),
        #[cfg(target_arch = "x86_64")]
        (level, what) => {
            // SAFETY: the Isa proves the level.
            unsafe {
                match (level, what) {
                    (Level::Scalar, _) => {}
                    (Level::Avx2 | Level::AvxVnni, Arithmetic::F32) => {
                        vectors::f32_avx2::<CHAINS>(rounds);
                    }
                    (Level::Avx2, Arithmetic::Int8) => vectors::int8_avx2::<CHAINS>(rounds),
                    (Level::AvxVnni, Arithmetic::Int8) => vectors::int8_avx_vnni::<CHAINS>(rounds),
                    (Level::Avx512, Arithmetic::F32) => vectors::f32_avx512::<CHAINS>(rounds),
                    (Level::Avx512, Arithmetic::Int8) => vectors::int8_avx512::<CHAINS>(rounds),
                }
            }
            if level == Level::Avx512 { 16 } else { 8 }
        }
        // A product of byte matrices is as much as two dot products.
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the Isa proves the level.
        (level, what) => unsafe {
            match (level, what) {
                (Level::Scalar, _) => 4,
                (_, Arithmetic::F32) => {
                    vectors::f32_neon::<CHAINS>(rounds);
                    4
                }
                (Level::Neon, Arithmetic::Int8) => {
                    vectors::int8_neon::<CHAINS>(rounds);
                    4
                }
                (Level::NeonDotprod, Arithmetic::Int8) => {
                    vectors::int8_neon_dotprod::<CHAINS>(rounds);
                    4
                }
                (Level::NeonI8mm, Arithmetic::Int8) => {
                    vectors::int8_neon_i8mm::<CHAINS>(rounds);
                    8
                }
            }
        },
    };
    let products = match what {
        Arithmetic::F32 => lanes,
        Arithmetic::Int8 => 4 * lanes,
    };
    2 * products * CHAINS as u64 * rounds
}

fn scalar_read(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    words.fold(0, |sum: u64, word| {
        let word: [u8; 8] = word.try_into().unwrap_or_default();
        sum.wrapping_add(u64::from_le_bytes(word))
    })
}

fn scalar_arithmetic(what: Arithmetic, rounds: u64) -> u64 {
    match what {
        Arithmetic::F32 => {
            let (a, b) = std::hint::black_box((1.000_001f32, 0.25f32));
            let mut sums = [0.5f32; CHAINS];
            for _ in 0..rounds {
                sums.iter_mut().for_each(|sum| *sum = a * *sum + b);
            }
            std::hint::black_box(sums);
        }
        Arithmetic::Int8 => {
            let (a, b) = std::hint::black_box((3i8, 5i8));
            let mut sums = [0i32; CHAINS];
            for _ in 0..rounds {
                sums.iter_mut().for_each(|sum| {
                    *sum = std::hint::black_box(*sum)
                        .wrapping_add(i32::from(a).wrapping_mul(i32::from(b)));
                });
            }
            std::hint::black_box(sums);
        }
    }
    2 * CHAINS as u64 * rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_reads_every_word() {
        let bytes: Vec<u8> = (0..10_007u32).map(|i| ((i * i) >> 3) as u8).collect();
        for isa in Isa::available() {
            for len in [0, 7, 8, 64, 511, 512, 513, 4096, bytes.len()] {
                let sum = read(isa, &bytes[..len]);
                assert_eq!(sum, scalar_read(&bytes[..len]), "{isa}, {len} bytes");
            }
        }
    }

    #[test]
    fn operations_grow_with_rounds() {
        for isa in Isa::available() {
            for what in [Arithmetic::F32, Arithmetic::Int8] {
                let one = arithmetic(isa, what, 1);
                assert!(one > 0);
                assert_eq!(arithmetic(isa, what, 10), 10 * one, "{isa}, {what:?}");
            }
        }
    }
}
