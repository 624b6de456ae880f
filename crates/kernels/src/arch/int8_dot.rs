//! Int8 dot products of quants and activations: for AVX2, AVX-VNNI and AVX-512 ([`x86`]) and for NEON ([`neon`]).

#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, AvxVnni, sums_in_i16};

use crate::layout::activation_block::ActivationBlock;
use crate::packing::GROUPS;

/// Vector operations of the GEMV kernels under common names for all levels.
///
/// An `Ints` vector holds four columns of `ROWS` rows, one byte each, or an i32 for each row.
///
/// # Safety
/// Of every method: the processor has the level, and pointers are valid for a whole vector.
pub(crate) trait Int8Dot {
    /// Rows of a vector.
    const ROWS: usize;
    /// An f32 for each row.
    type F: Copy;
    /// The integer vector.
    type Ints: Copy;
    /// Whether quants with zero point `2^zero_log2` are shifted to the zero point `2^ZERO_POINT_LOG2`.
    const ALIGNS_ZERO_POINT: bool;

    unsafe fn load(from: *const u8) -> Self::Ints;
    /// Initial value of a sum of products for quants of `bits` bits with zero point `2^zero_log2`;
    /// [`Int8Dot::scaled_sum`] removes the offset.
    unsafe fn initial_sum(
        x: &ActivationBlock,
        sum_index: usize,
        zero_log2: Option<u32>,
        bits: usize,
    ) -> Self::Ints;
    /// `(v >> right) & mask`, bytewise.
    unsafe fn shift_right_mask(v: Self::Ints, right: usize, mask: u8) -> Self::Ints;
    /// `(v << left) & mask`, bytewise.
    unsafe fn shift_left_mask(v: Self::Ints, left: usize, mask: u8) -> Self::Ints;
    unsafe fn or(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// The entry of `table` for each byte, which is below 16.
    unsafe fn look_up(table: &[u8; 16], bytes: Self::Ints) -> Self::Ints;
    /// `start` plus the products of groups `from..to`, exact; `x` is the block's activations, and quants have
    /// `bits` bits.
    unsafe fn dot_groups(
        start: Self::Ints,
        quants: &[Self::Ints; GROUPS],
        groups: (usize, usize),
        x: *const i8,
        bits: usize,
    ) -> Self::Ints;
    /// The sum of products times the scale of the activations, rounded once.
    unsafe fn scaled_sum(sum: Self::Ints, x: &ActivationBlock) -> Self::F;
    /// One u8 per row, as f32.
    unsafe fn load_u8(from: *const u8) -> Self::F;
    /// One i8 per row, as f32.
    unsafe fn load_i8(from: *const u8) -> Self::F;
    /// The low and the high four bits of one byte per row, as f32.
    unsafe fn load_nibbles(from: *const u8) -> (Self::F, Self::F);
    /// One f32 per row.
    unsafe fn load_f32(from: *const u8) -> Self::F;
    /// One f16 per row, as f32.
    unsafe fn load_f16(from: *const u8) -> Self::F;
    /// One bf16 per row, as f32.
    unsafe fn load_bf16(from: *const u8) -> Self::F;
    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    unsafe fn store(v: Self::F, to: *mut f32);
}

/// Products of bytes that an instruction adds to sums: AVX-VNNI and AVX-512.
///
/// # Safety
/// As [`Int8Dot`].
#[cfg(target_arch = "x86_64")]
pub(crate) trait AddProducts: Int8Dot {
    /// `sum` plus the products of four columns of quants with those of activations.
    unsafe fn add_products(sum: Self::Ints, quants: Self::Ints, x: i32) -> Self::Ints;
    unsafe fn store_ints(v: Self::Ints, to: *mut u8);
}
