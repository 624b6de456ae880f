//! Choice of the kernel for a tensor format and an instruction set.

use super::reference;
#[cfg(target_arch = "x86_64")]
use crate::arch::{
    amx_bf16_gemm::{ByteSource, FloatSource, gemm_bf16},
    amx_int8_gemm::gemm_int8,
    gemm,
    gemm_avx2::gemm_quants_avx2,
    gemm_avx2_floats::gemm_floats_avx2,
    gemv,
};
#[cfg(target_arch = "aarch64")]
use crate::arch::{gemm_neon, gemv};
use crate::isa::Level;
use crate::layout::gemm::{AmxKernel, GemmKernel, GemmKernels, GemvKernel};
use crate::packing::{self, PackedFormat};
use crate::{Format, Isa};

/// Calls a function that is generic over a packed format or over the number of a float format.
macro_rules! by_format {
    ($format:expr, $quants:ident, $floats:ident, $($argument:expr),*) => {
        match $format {
            Format::F32 => $floats::<{ Format::F32 as u8 }>($($argument),*),
            Format::F16 => $floats::<{ Format::F16 as u8 }>($($argument),*),
            Format::BF16 => $floats::<{ Format::BF16 as u8 }>($($argument),*),
            Format::Q4_0 => $quants::<packing::Q4_0>($($argument),*),
            Format::Q4_1 => $quants::<packing::Q4_1>($($argument),*),
            Format::Q5_0 => $quants::<packing::Q5_0>($($argument),*),
            Format::Q5_1 => $quants::<packing::Q5_1>($($argument),*),
            Format::Q8_0 => $quants::<packing::Q8_0>($($argument),*),
            Format::Q2_K => $quants::<packing::Q2_K>($($argument),*),
            Format::Q3_K => $quants::<packing::Q3_K>($($argument),*),
            Format::Q4_K => $quants::<packing::Q4_K>($($argument),*),
            Format::Q5_K => $quants::<packing::Q5_K>($($argument),*),
            Format::Q6_K => $quants::<packing::Q6_K>($($argument),*),
            Format::IQ4_NL => $quants::<packing::IQ4_NL>($($argument),*),
            Format::IQ4_XS => $quants::<packing::IQ4_XS>($($argument),*),
            Format::IQ3_S => $quants::<packing::IQ3_S>($($argument),*),
            Format::IQ3_XXS => $quants::<packing::IQ3_XXS>($($argument),*),
            Format::MXFP4 => $quants::<packing::MXFP4>($($argument),*),
            // Packed alike.
            Format::IQ2_S | Format::IQ2_XS | Format::IQ2_XXS => $quants::<packing::IQ2_S>($($argument),*),
        }
    };
}

/// The GEMV kernel for `rows` rows of activations.
pub(super) fn gemv_kernel(isa: Isa, format: Format, rows: usize) -> GemvKernel {
    by_format!(format, gemv_quant_kernel, gemv_float_kernel, isa, rows)
}

/// The GEMM kernels of a format, if the level has some.
#[cfg(target_arch = "x86_64")]
pub(super) fn gemm_kernels(isa: Isa, format: Format) -> Option<GemmKernels> {
    match isa.level() {
        Level::Avx512 => Some(GemmKernels {
            kernels: by_format!(format, avx512_quant_kernels, avx512_float_kernels,),
            rows_min: 9,
            rows_bytes: 768 << 10,
        }),
        Level::AvxVnni => Some(GemmKernels {
            kernels: by_format!(format, avx_vnni_quant_kernels, avx2_float_kernels,),
            rows_min: 5,
            rows_bytes: avx2_rows_bytes(format),
        }),
        Level::Avx2 => Some(GemmKernels {
            kernels: by_format!(format, avx2_quant_kernels, avx2_float_kernels,),
            rows_min: 5,
            rows_bytes: avx2_rows_bytes(format),
        }),
        _ => None,
    }
}

/// The kernel of floats reads activations from any cache, and each call unpacks weights: it takes as many rows as it can.
#[cfg(target_arch = "x86_64")]
fn avx2_rows_bytes(format: Format) -> usize {
    if format.block_weights() == 1 {
        usize::MAX
    } else {
        256 << 10
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2_quant_kernels<P: PackedFormat>() -> [GemmKernel; 2] {
    [gemm_quants_avx2::<P, 1>, gemm_quants_avx2::<P, 2>]
}

#[cfg(target_arch = "x86_64")]
fn avx2_float_kernels<const F: u8>() -> [GemmKernel; 2] {
    [gemm_floats_avx2::<F, 1>, gemm_floats_avx2::<F, 2>]
}

#[cfg(target_arch = "x86_64")]
fn avx_vnni_quant_kernels<P: PackedFormat>() -> [GemmKernel; 2] {
    [
        gemm::gemm_quants_avx_vnni::<P, 1>,
        gemm::gemm_quants_avx_vnni::<P, 2>,
    ]
}

#[cfg(target_arch = "x86_64")]
fn avx512_quant_kernels<P: PackedFormat>() -> [GemmKernel; 2] {
    [
        gemm::gemm_quants_avx512::<P, 1>,
        gemm::gemm_quants_avx512::<P, 2>,
    ]
}

#[cfg(target_arch = "x86_64")]
fn avx512_float_kernels<const F: u8>() -> [GemmKernel; 2] {
    [gemm::gemm_floats::<F, 1>, gemm::gemm_floats::<F, 2>]
}

/// The GEMM kernels of a quantized format, if the level has dot products.
#[cfg(target_arch = "aarch64")]
pub(super) fn gemm_kernels(isa: Isa, format: Format) -> Option<GemmKernels> {
    Some(GemmKernels {
        kernels: by_format!(format, neon_quant_kernels, neon_float_kernels, isa)?,
        rows_min: 5,
        rows_bytes: 256 << 10,
    })
}

#[cfg(target_arch = "aarch64")]
fn neon_quant_kernels<P: PackedFormat>(isa: Isa) -> Option<[GemmKernel; 2]> {
    match isa.level() {
        Level::Scalar | Level::Neon => None,
        Level::NeonDotprod => Some([
            gemm_neon::gemm_quants_dotprod::<P, 1>,
            gemm_neon::gemm_quants_dotprod::<P, 2>,
        ]),
        Level::NeonI8mm => Some([
            gemm_neon::gemm_quants_i8mm::<P, 1>,
            gemm_neon::gemm_quants_i8mm::<P, 2>,
        ]),
    }
}

/// With NEON, floats have no GEMM kernels.
#[cfg(target_arch = "aarch64")]
fn neon_float_kernels<const F: u8>(_: Isa) -> Option<[GemmKernel; 2]> {
    None
}

/// Other architectures have no GEMM kernels.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn gemm_kernels(_: Isa, _: Format) -> Option<GemmKernels> {
    None
}

/// The AMX kernels for one panel and for two, if the processor has AMX and the format has AMX kernels.
#[cfg(target_arch = "x86_64")]
pub(super) fn amx_kernels(isa: Isa, format: Format) -> Option<[AmxKernel; 2]> {
    if !isa.has_tiles() {
        return None;
    }
    match format {
        Format::Q8_0 => amx_byte_kernels::<packing::Q8_0>(),
        Format::IQ4_NL => amx_byte_kernels::<packing::IQ4_NL>(),
        Format::IQ4_XS => amx_byte_kernels::<packing::IQ4_XS>(),
        Format::MXFP4 => amx_byte_kernels::<packing::MXFP4>(),
        Format::IQ3_S => amx_byte_kernels::<packing::IQ3_S>(),
        Format::IQ3_XXS => amx_byte_kernels::<packing::IQ3_XXS>(),
        Format::IQ2_S | Format::IQ2_XS | Format::IQ2_XXS => amx_byte_kernels::<packing::IQ2_S>(),
        _ => by_format!(format, amx_quant_kernels, amx_float_kernels,),
    }
}

/// Short quants become int8 tiles.
#[cfg(target_arch = "x86_64")]
fn amx_quant_kernels<P: PackedFormat>() -> Option<[AmxKernel; 2]> {
    P::QUANT
        .fits_int8()
        .then_some([gemm_int8::<P, 1>, gemm_int8::<P, 2>])
}

/// Quants or levels of a byte become bf16 tiles.
#[cfg(target_arch = "x86_64")]
fn amx_byte_kernels<P: PackedFormat>() -> Option<[AmxKernel; 2]> {
    Some([gemm_bf16::<ByteSource<P>, 1>, gemm_bf16::<ByteSource<P>, 2>])
}

/// Floats of 16 bits become bf16 tiles; f32 weights have no AMX kernels.
#[cfg(target_arch = "x86_64")]
fn amx_float_kernels<const F: u8>() -> Option<[AmxKernel; 2]> {
    (F != Format::F32 as u8).then_some([
        gemm_bf16::<FloatSource<F>, 1>,
        gemm_bf16::<FloatSource<F>, 2>,
    ])
}

/// Other architectures have no AMX.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn amx_kernels(_: Isa, _: Format) -> Option<[AmxKernel; 2]> {
    None
}

/// The GEMV kernel of a packed format for `rows` rows.
fn gemv_quant_kernel<P: PackedFormat>(isa: Isa, rows: usize) -> GemvKernel {
    match (isa.level(), rows) {
        (Level::Scalar, _) => reference::multiply_quants::<P>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 1) => gemv::quants_avx2::<P, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 2) => gemv::quants_avx2::<P, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 3..=4) => gemv::quants_avx2::<P, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, _) => gemv::quants_avx2::<P, 8>,
        #[cfg(target_arch = "x86_64")]
        (Level::AvxVnni, 1) => gemv::quants_avx_vnni::<P, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::AvxVnni, 2) => gemv::quants_avx_vnni::<P, 2>,
        #[cfg(target_arch = "x86_64")]
        // More rows have GEMM kernels.
        (Level::AvxVnni, _) => gemv::quants_avx_vnni::<P, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 1) => gemv::quants_avx512::<P, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 2) => gemv::quants_avx512::<P, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 3..=4) => gemv::quants_avx512::<P, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 5..=6) => gemv::quants_avx512::<P, 6>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, _) => gemv::quants_avx512::<P, 8>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, 1) => gemv::quants_neon::<P, 1>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, 2) => gemv::quants_neon::<P, 2>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, _) => gemv::quants_neon::<P, 4>,
        #[cfg(target_arch = "aarch64")]
        (Level::NeonDotprod, 1) => gemv::quants_neon_dotprod::<P, 1>,
        #[cfg(target_arch = "aarch64")]
        (Level::NeonDotprod, 2) => gemv::quants_neon_dotprod::<P, 2>,
        #[cfg(target_arch = "aarch64")]
        (Level::NeonDotprod, _) => gemv::quants_neon_dotprod::<P, 4>,
        #[cfg(target_arch = "aarch64")]
        (Level::NeonI8mm, 1) => gemv::quants_neon_i8mm::<P, 1>,
        #[cfg(target_arch = "aarch64")]
        (Level::NeonI8mm, 2) => gemv::quants_neon_i8mm::<P, 2>,
        #[cfg(target_arch = "aarch64")]
        (Level::NeonI8mm, _) => gemv::quants_neon_i8mm::<P, 4>,
    }
}

/// The GEMV kernel of the float format with number `F` for `rows` rows.
fn gemv_float_kernel<const F: u8>(isa: Isa, rows: usize) -> GemvKernel {
    match (isa.level(), rows) {
        (Level::Scalar, _) => reference::multiply_floats::<F>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, 1) => gemv::floats_avx2::<F, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, 2) => gemv::floats_avx2::<F, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, _) => gemv::floats_avx2::<F, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 1) => gemv::floats_avx512::<F, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 2) => gemv::floats_avx512::<F, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 3..=4) => gemv::floats_avx512::<F, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, _) => gemv::floats_avx512::<F, 8>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon | Level::NeonDotprod | Level::NeonI8mm, 1) => gemv::floats_neon::<F, 1>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon | Level::NeonDotprod | Level::NeonI8mm, 2) => gemv::floats_neon::<F, 2>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon | Level::NeonDotprod | Level::NeonI8mm, _) => gemv::floats_neon::<F, 4>,
    }
}
