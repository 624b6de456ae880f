//! How data lies and what calls take, where the callers and the fast paths of `arch` below them must agree.

pub(crate) mod activation_block;
pub(crate) mod activations;
pub(crate) mod amx_gemm;
pub(crate) mod attention;
pub(crate) mod bf16_tile;
pub(crate) mod gemm;
pub(crate) mod int8_tile;
pub(crate) mod tile_sizes;
