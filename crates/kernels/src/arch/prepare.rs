//! Preparing activations: the plain code, compiled for each level.

use crate::layout::activation_block::{ActBlock, prepare};
use crate::layout::bf16_tile::{Halves, round};
use crate::layout::int8_tile::{CodeChunk, code};

/// [`prepare`] with AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn prepare_avx2(x: &[f32], blocks: &mut [ActBlock], floats: &mut [f32]) {
    prepare(x, blocks, floats);
}

/// [`prepare`] with AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn prepare_avx512(x: &[f32], blocks: &mut [ActBlock], floats: &mut [f32]) {
    prepare(x, blocks, floats);
}

/// [`round`] with AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn round_avx512(x: &[f32], blocks: usize, put: impl FnMut(usize, Halves)) {
    round(x, blocks, put);
}

/// [`code`] with AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn code_avx512(x: &[f32]) -> CodeChunk {
    code(x)
}
