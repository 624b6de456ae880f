//! Quantization of activations on the vectors of a level.
#![allow(unsafe_code)] // Entering a fast path; the Isa is the proof.

use crate::Isa;
use crate::isa::Level;
use crate::layout::activation_block::{ActivationBlock, quantize_blocks};
use crate::layout::tiles::{Bf16Line, Int8KBlock, quantize_k_block, round_to_bf16};

#[cfg(target_arch = "x86_64")]
use crate::arch::activations::{
    quantize_blocks_avx2, quantize_blocks_avx512, quantize_k_block_avx512, round_to_bf16_avx512,
};

/// [`quantize_blocks`] on the vectors of a level.
pub(super) fn quantize_blocks_on(
    isa: Isa,
    x: &[f32],
    blocks: &mut [ActivationBlock],
    floats: &mut [f32],
) {
    match isa.level() {
        Level::Scalar => quantize_blocks(x, blocks, floats),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx2 | Level::AvxVnni => unsafe { quantize_blocks_avx2(x, blocks, floats) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { quantize_blocks_avx512(x, blocks, floats) },
        // All code for AArch64 is compiled with NEON.
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::NeonDotprod | Level::NeonI8mm => quantize_blocks(x, blocks, floats),
    }
}

/// [`round_to_bf16`] on the vectors of a level.
pub(super) fn round_to_bf16_on(
    isa: Isa,
    x: &[f32],
    blocks: usize,
    put: impl FnMut(usize, Bf16Line),
) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { round_to_bf16_avx512(x, blocks, put) },
        _ => round_to_bf16(x, blocks, put),
    }
}

/// [`quantize_k_block`] on the vectors of a level.
pub(super) fn quantize_k_block_on(isa: Isa, x: &[f32]) -> Int8KBlock {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { quantize_k_block_avx512(x) },
        _ => quantize_k_block(x),
    }
}
