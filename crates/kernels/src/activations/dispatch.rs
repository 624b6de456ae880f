//! Preparing activations with the vectors of a level.
#![allow(unsafe_code)] // Entering a fast path; the Isa is the proof.

use crate::Isa;
use crate::isa::Level;
use crate::layout::activation_block::{ActBlock, prepare};
use crate::layout::bf16_tile::{Halves, round};
use crate::layout::int8_tile::{CodeChunk, code};

#[cfg(target_arch = "x86_64")]
use crate::arch::prepare::{code_avx512, prepare_avx2, prepare_avx512, round_avx512};

/// As [`prepare`], with the vectors of the level.
pub(super) fn prepare_on(isa: Isa, x: &[f32], blocks: &mut [ActBlock], floats: &mut [f32]) {
    match isa.level() {
        Level::Scalar => prepare(x, blocks, floats),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx2 | Level::AvxVnni => unsafe { prepare_avx2(x, blocks, floats) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { prepare_avx512(x, blocks, floats) },
    }
}

/// As [`round`], with the vectors of the level.
pub(super) fn round_on(isa: Isa, x: &[f32], blocks: usize, put: impl FnMut(usize, Halves)) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { round_avx512(x, blocks, put) },
        _ => round(x, blocks, put),
    }
}

/// As [`code`], with the vectors of the level.
pub(super) fn code_on(isa: Isa, x: &[f32]) -> CodeChunk {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { code_avx512(x) },
        _ => code(x),
    }
}
