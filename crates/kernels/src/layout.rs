//! Data layouts and call types shared by the drivers and the kernels of `arch` below them.

pub(crate) mod activation_block;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AMX"))]
pub(crate) mod activations;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AMX"))]
pub(crate) mod amx_gemm;
pub(crate) mod attention;
pub(crate) mod bf16_tile;
pub(crate) mod gemm;
pub(crate) mod int8_tile;
pub(crate) mod swiglu;
pub(crate) mod tile_sizes;
