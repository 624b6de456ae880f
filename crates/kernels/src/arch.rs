//! Fast paths. Each has a scalar twin, and is entered only with an [`crate::Isa`] that allows it.
//!
//! [`lanes`] names the vector instructions once for AVX2 and AVX-512; the paths of the row-wise
//! operations and of attention are written over it. Nothing here chooses a level:
//! `dispatch`, and the callers above, do.
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
pub(crate) mod amx_bf16_gemm;
#[cfg(target_arch = "x86_64")]
mod amx_int8_dequantize;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx_int8_gemm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
pub(crate) mod attention_int8;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gemm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gemv;
#[cfg(target_arch = "x86_64")]
pub(crate) mod int8_dot;
#[cfg(target_arch = "x86_64")]
pub(crate) mod lanes;
#[cfg(target_arch = "x86_64")]
mod packed_block;
pub(crate) mod prefetch;
#[cfg(target_arch = "x86_64")]
pub(crate) mod probe;
#[cfg(target_arch = "x86_64")]
pub(crate) mod rowwise;
