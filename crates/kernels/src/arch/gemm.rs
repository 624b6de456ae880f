//! GEMM of AVX-512 and AVX-VNNI: one or two panels of weights times many rows of activations. `matmul::reference`
//! defines the result.
//!
//! A K-block of one or two panels is unpacked once into a buffer that fits the L1 cache, and multiplied with
//! many rows of activations, a few rows at a time. The accumulators of each row carry over from K-block to
//! K-block, so the order of additions is that of the GEMV kernels.
//!
//! ```text
//! unpacked quants: for every 32 columns: quants [group][vector], scale f32 [sub_block][vector],
//!                  shift f32 [sub_block][vector] in formats with a shift
//! unpacked floats: for every column: weight f32 [panel][16]
//! ```

mod floats;
mod quants;

pub(crate) use floats::gemm_floats;
pub(crate) use quants::{gemm_quants_avx_vnni, gemm_quants_avx512};
