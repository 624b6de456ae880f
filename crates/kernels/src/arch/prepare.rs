//! Preparing activations: the plain code, compiled for each level.

use crate::Isa;
use crate::activations::codes::{CodeChunk, code};
use crate::activations::halves::{Halves, round};
use crate::activations::{ActBlock, prepare};
use crate::isa::Level;

/// As [`prepare`], with the vectors of the level.
pub(crate) fn prepare_on(isa: Isa, x: &[f32], blocks: &mut [ActBlock], floats: &mut [f32]) {
    match isa.level() {
        Level::Scalar => prepare(x, blocks, floats),
        // SAFETY: the Isa proves the level.
        Level::Avx2 | Level::AvxVnni => unsafe { avx2(x, blocks, floats) },
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { avx512(x, blocks, floats) },
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn avx2(x: &[f32], blocks: &mut [ActBlock], floats: &mut [f32]) {
    prepare(x, blocks, floats);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512(x: &[f32], blocks: &mut [ActBlock], floats: &mut [f32]) {
    prepare(x, blocks, floats);
}

/// As [`round`], with the vectors of the level.
pub(crate) fn round_on(isa: Isa, x: &[f32], blocks: usize, put: impl FnMut(usize, Halves)) {
    match isa.level() {
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { round_avx512(x, blocks, put) },
        Level::Scalar | Level::Avx2 | Level::AvxVnni => round(x, blocks, put),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn round_avx512(x: &[f32], blocks: usize, put: impl FnMut(usize, Halves)) {
    round(x, blocks, put);
}

/// As [`code`], with the vectors of the level.
pub(crate) fn code_on(isa: Isa, x: &[f32]) -> CodeChunk {
    match isa.level() {
        // SAFETY: the Isa proves the level.
        Level::Avx512 => unsafe { code_avx512(x) },
        Level::Scalar | Level::Avx2 | Level::AvxVnni => code(x),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn code_avx512(x: &[f32]) -> CodeChunk {
    code(x)
}
