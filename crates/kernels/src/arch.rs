//! Vector and AMX kernels, one function per instruction set. Each has a scalar reference implementation.
//!
//! The functions here compute on slices and on the types of [`crate::layout`]. None chooses a level:
//! [`crate::dispatch`] and the drivers do, with an [`crate::Isa`] as the proof that the processor has the
//! instructions. [`lanes`] gives the f32 instructions of AVX2, AVX-512 and NEON common names, [`int8_dot`] the
//! products of bytes: row-wise operations, attention and the kernels of few rows are written once over them.
#![allow(unsafe_code)] // Vector instructions and loads through pointers.

#[cfg(target_arch = "x86_64")]
pub(crate) mod activations;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx_attention;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx_attention_pack;
#[cfg(target_arch = "x86_64")]
mod amx_attention_sources;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx_bf16_gemm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx_dense_attention;
#[cfg(target_arch = "x86_64")]
mod amx_int8_dequantize;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx_int8_gemm;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod attention;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod attention_int4;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod attention_int8;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod dense_attention;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gemm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gemm_avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gemm_avx2_floats;
#[cfg(target_arch = "aarch64")]
pub(crate) mod gemm_neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod gemv;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod int8_dot;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod lanes;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod packed_block;
pub(crate) mod prefetch;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod probe;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod recurrent;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod rowwise;
