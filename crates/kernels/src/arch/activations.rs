//! Quantization of activations: the scalar code of [`crate::layout`], compiled for each level.

use crate::layout::activation_block::{ActivationBlock, quantize_blocks};
use crate::layout::tiles::{Bf16Line, Int8KBlock, quantize_k_block, round_to_bf16};

/// [`quantize_blocks`] with AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn quantize_blocks_avx2(x: &[f32], blocks: &mut [ActivationBlock], floats: &mut [f32]) {
    quantize_blocks(x, blocks, floats);
}

/// [`quantize_blocks`] with AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn quantize_blocks_avx512(
    x: &[f32],
    blocks: &mut [ActivationBlock],
    floats: &mut [f32],
) {
    quantize_blocks(x, blocks, floats);
}

/// [`round_to_bf16`] with AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn round_to_bf16_avx512(x: &[f32], blocks: usize, put: impl FnMut(usize, Bf16Line)) {
    round_to_bf16(x, blocks, put);
}

/// [`quantize_k_block`] with AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn quantize_k_block_avx512(x: &[f32]) -> Int8KBlock {
    quantize_k_block(x)
}
