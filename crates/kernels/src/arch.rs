//! Fast paths. Each has a scalar twin, and is entered only with an [`crate::Isa`] that allows it.
//!
//! [`lanes`] names the vector instructions once for AVX2 and AVX-512; the paths of the row-wise
//! operations and of attention are written over it. Nothing here chooses a level:
//! `dispatch`, and the callers above, do.
#![allow(unsafe_code)] // Vector instructions and loads through pointers.

#[cfg(target_arch = "x86_64")]
pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
pub(crate) mod attention_ready;
#[cfg(target_arch = "x86_64")]
pub(crate) mod attention_tiles;
#[cfg(target_arch = "x86_64")]
mod block;
#[cfg(target_arch = "x86_64")]
pub(crate) mod codes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod dots;
#[cfg(target_arch = "x86_64")]
pub(crate) mod lanes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod matmul;
pub(crate) mod prefetch;
#[cfg(target_arch = "x86_64")]
pub(crate) mod prepare;
#[cfg(target_arch = "x86_64")]
pub(crate) mod probe;
#[cfg(target_arch = "x86_64")]
pub(crate) mod rowwise;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiled;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiled_codes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;
#[cfg(target_arch = "x86_64")]
pub(crate) mod wide;
