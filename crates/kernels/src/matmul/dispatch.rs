//! Which kernel a format and a level take.

use super::scalar;
#[cfg(target_arch = "x86_64")]
use crate::arch::{
    matmul as narrow,
    tiled::{Bytes, Halves, panels},
    tiled_codes::panels as codes_of,
    wide,
};
use crate::isa::Level;
use crate::layout::amx_gemm::Tiled;
use crate::layout::gemm::{Kernel, Wide};
use crate::packing::{self, Packing};
use crate::{Format, Isa};

/// Calls a function of a packing or of a float format's number for a format.
macro_rules! by_format {
    ($format:expr, $codes:ident, $floats:ident, $($argument:expr),*) => {
        match $format {
            Format::F32 => $floats::<{ Format::F32 as u8 }>($($argument),*),
            Format::F16 => $floats::<{ Format::F16 as u8 }>($($argument),*),
            Format::BF16 => $floats::<{ Format::BF16 as u8 }>($($argument),*),
            Format::Q4_0 => $codes::<packing::Q4_0>($($argument),*),
            Format::Q4_1 => $codes::<packing::Q4_1>($($argument),*),
            Format::Q5_0 => $codes::<packing::Q5_0>($($argument),*),
            Format::Q5_1 => $codes::<packing::Q5_1>($($argument),*),
            Format::Q8_0 => $codes::<packing::Q8_0>($($argument),*),
            Format::Q2_K => $codes::<packing::Q2_K>($($argument),*),
            Format::Q3_K => $codes::<packing::Q3_K>($($argument),*),
            Format::Q4_K => $codes::<packing::Q4_K>($($argument),*),
            Format::Q5_K => $codes::<packing::Q5_K>($($argument),*),
            Format::Q6_K => $codes::<packing::Q6_K>($($argument),*),
        }
    };
}

/// The kernel for `rows` rows of activations.
pub(super) fn kernel(isa: Isa, format: Format, rows: usize) -> Kernel {
    by_format!(format, code_kernel, float_kernel, isa, rows)
}

/// The kernels for many rows of activations and one or two panels, if the level has them.
#[cfg(target_arch = "x86_64")]
pub(super) fn wide_kernels(isa: Isa, format: Format) -> Option<[Wide; 2]> {
    match isa.level() {
        Level::Avx512 => Some(by_format!(format, wide_codes, wide_floats,)),
        _ => None,
    }
}

#[cfg(target_arch = "x86_64")]
fn wide_codes<P: Packing>() -> [Wide; 2] {
    [wide::codes::<P, 1>, wide::codes::<P, 2>]
}

#[cfg(target_arch = "x86_64")]
fn wide_floats<const F: u8>() -> [Wide; 2] {
    [wide::floats::<F, 1>, wide::floats::<F, 2>]
}

/// The kernels for many rows of activations and one or two panels: none.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn wide_kernels(_: Isa, _: Format) -> Option<[Wide; 2]> {
    None
}

/// The kernels for many rows on tiles and one or two panels, if there are tiles and the format takes them.
#[cfg(target_arch = "x86_64")]
pub(super) fn tiled_kernels(isa: Isa, format: Format) -> Option<[Tiled; 2]> {
    if !isa.has_tiles() {
        return None;
    }
    by_format!(format, tiled_codes, tiled_floats,)
}

/// Codes become int8 where they are short, else bf16.
#[cfg(target_arch = "x86_64")]
fn tiled_codes<P: Packing>() -> Option<[Tiled; 2]> {
    if P::SCHEME.takes_codes() {
        return Some([codes_of::<P, 1>, codes_of::<P, 2>]);
    }
    const { assert!(P::SCHEME.takes_codes() || P::SCHEME.low == 8) };
    Some([panels::<Bytes, 1>, panels::<Bytes, 2>])
}

/// Floats that are as wide as those of tiles.
#[cfg(target_arch = "x86_64")]
fn tiled_floats<const F: u8>() -> Option<[Tiled; 2]> {
    (F != Format::F32 as u8).then_some([panels::<Halves<F>, 1>, panels::<Halves<F>, 2>])
}

/// The kernels for many rows on tiles: none.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn tiled_kernels(_: Isa, _: Format) -> Option<[Tiled; 2]> {
    None
}

/// The kernel of a packing for `rows` rows.
fn code_kernel<P: Packing>(isa: Isa, rows: usize) -> Kernel {
    match (isa.level(), rows) {
        (Level::Scalar, _) => scalar::codes::<P>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 1) => narrow::codes_avx2::<P, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 2) => narrow::codes_avx2::<P, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 3..=4) => narrow::codes_avx2::<P, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, _) => narrow::codes_avx2::<P, 8>,
        #[cfg(target_arch = "x86_64")]
        (Level::AvxVnni, 1) => narrow::codes_avx_vnni::<P, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::AvxVnni, 2) => narrow::codes_avx_vnni::<P, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::AvxVnni, 3..=4) => narrow::codes_avx_vnni::<P, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::AvxVnni, _) => narrow::codes_avx_vnni::<P, 8>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 1) => narrow::codes_avx512::<P, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 2) => narrow::codes_avx512::<P, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 3..=4) => narrow::codes_avx512::<P, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, _) => narrow::codes_avx512::<P, 8>,
    }
}

/// The kernel of the float format whose number is `F`, for `rows` rows.
fn float_kernel<const F: u8>(isa: Isa, rows: usize) -> Kernel {
    match (isa.level(), rows) {
        (Level::Scalar, _) => scalar::floats::<F>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, 1) => narrow::floats_avx2::<F, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, 2) => narrow::floats_avx2::<F, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::AvxVnni, _) => narrow::floats_avx2::<F, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 1) => narrow::floats_avx512::<F, 1>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 2) => narrow::floats_avx512::<F, 2>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 3..=4) => narrow::floats_avx512::<F, 4>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, _) => narrow::floats_avx512::<F, 8>,
    }
}
