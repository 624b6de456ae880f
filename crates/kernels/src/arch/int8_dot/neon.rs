//! Int8 dot products of NEON.
//!
//! Rust's intrinsics for the dot products are unstable, so they are inline assembly. Source: Arm Architecture Reference
//! Manual for A-profile, "C7.2" (`SDOT`, `USDOT`, `SMMLA`).

use super::Int8Dot;
use crate::arch::lanes::load_four_f16;
use crate::arch::packed_block::by_distance;
use crate::layout::activation_block::{ActivationBlock, MAGIC_BITS, ZERO_POINT_LOG2};
use crate::packing::GROUPS;
use core::arch::aarch64::*;
use core::arch::asm;

/// Products of the baseline: two of bytes in 16 bits.
pub(crate) const BASELINE: u8 = 0;
/// Dot products of Armv8.2 of signed bytes.
pub(crate) const DOTPROD: u8 = 1;
/// Dot products of Armv8.6 of unsigned and signed bytes.
pub(crate) const I8MM: u8 = 2;

/// NEON, eight rows in two registers, with the dot products of a level.
pub(crate) struct NeonRows<const PRODUCTS: u8>;

/// Adds to each i32 of `sum` the products of four i8 with the `LANE`th four bytes of `x`.
///
/// # Safety
/// The processor has `FEAT_DotProd`.
#[inline(always)]
pub(in crate::arch) unsafe fn sdot_lane<const LANE: u8>(
    mut sum: int32x4_t,
    quants: int8x16_t,
    x: int8x16_t,
) -> int32x4_t {
    // SAFETY: guaranteed by the caller; registers alone.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {sum:v}.4s, {quants:v}.16b, {x:v}.4b[{lane}]",
            sum = inout(vreg) sum,
            quants = in(vreg) quants,
            x = in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// As [`sdot_lane`], for unsigned `quants`.
///
/// # Safety
/// The processor has `FEAT_I8MM`.
#[inline(always)]
unsafe fn usdot_lane<const LANE: u8>(
    mut sum: int32x4_t,
    quants: uint8x16_t,
    x: int8x16_t,
) -> int32x4_t {
    // SAFETY: guaranteed by the caller; registers alone.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "usdot {sum:v}.4s, {quants:v}.16b, {x:v}.4b[{lane}]",
            sum = inout(vreg) sum,
            quants = in(vreg) quants,
            x = in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Adds the product of 2 x 8 bytes with the transposed 2 x 8 bytes to the 2 x 2 sums.
///
/// # Safety
/// The processor has `FEAT_I8MM`.
#[inline(always)]
pub(in crate::arch) unsafe fn smmla(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: guaranteed by the caller; registers alone.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "smmla {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// [`sdot_lane`] with instructions that every processor has. Two products of bytes fit 16 bits: `|quant| <= 128` and
/// `|x| <= 127`.
#[inline(always)]
unsafe fn baseline_lane<const LANE: i32>(
    sum: int32x4_t,
    quants: int8x16_t,
    x: int8x16_t,
) -> int32x4_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let x = vreinterpretq_s8_s32(vdupq_laneq_s32::<LANE>(vreinterpretq_s32_s8(x)));
        let low = vmull_s8(vget_low_s8(quants), vget_low_s8(x));
        let high = vmull_high_s8(quants, x);
        vpadalq_s16(sum, vpaddq_s16(low, high))
    }
}

/// Both registers of eight rows as they are multiplied as signed bytes: quants of 8 bits count from -128.
#[inline(always)]
unsafe fn signed(quants: [uint8x16_t; 2], bits: usize) -> [int8x16_t; 2] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let zero = vdupq_n_u8(if bits == 8 { 128 } else { 0 });
        [
            vreinterpretq_s8_u8(veorq_u8(quants[0], zero)),
            vreinterpretq_s8_u8(veorq_u8(quants[1], zero)),
        ]
    }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl<const PRODUCTS: u8> Int8Dot for NeonRows<PRODUCTS> {
    const ROWS: usize = 8;
    type F = [float32x4_t; 2];
    type Ints = [uint8x16_t; 2];
    const ALIGNS_ZERO_POINT: bool = PRODUCTS == I8MM;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [uint8x16_t; 2] {
        unsafe { [vld1q_u8(from), vld1q_u8(from.add(16))] }
    }
    #[inline(always)]
    unsafe fn initial_sum(
        x: &ActivationBlock,
        sum_index: usize,
        zero_log2: Option<u32>,
        bits: usize,
    ) -> [uint8x16_t; 2] {
        let sum = x.initial_sums[sum_index];
        let start = match zero_log2 {
            Some(_) if PRODUCTS == I8MM => sum,
            None if PRODUCTS == I8MM => MAGIC_BITS,
            // `dot_groups` itself subtracts 128 from bytes.
            Some(log2) if bits < 8 => (sum - MAGIC_BITS) >> (ZERO_POINT_LOG2 - log2),
            _ => 0,
        };
        unsafe { [vreinterpretq_u8_s32(vdupq_n_s32(start)); 2] }
    }
    #[inline(always)]
    unsafe fn shift_right_mask(v: [uint8x16_t; 2], right: usize, mask: u8) -> [uint8x16_t; 2] {
        let [a, b] = v;
        unsafe {
            let mask = vdupq_n_u8(mask);
            let a = by_distance!(vshrq_n_u8, a, right);
            let b = by_distance!(vshrq_n_u8, b, right);
            [vandq_u8(a, mask), vandq_u8(b, mask)]
        }
    }
    #[inline(always)]
    unsafe fn shift_left_mask(v: [uint8x16_t; 2], left: usize, mask: u8) -> [uint8x16_t; 2] {
        let [a, b] = v;
        unsafe {
            let mask = vdupq_n_u8(mask);
            let a = by_distance!(vshlq_n_u8, a, left);
            let b = by_distance!(vshlq_n_u8, b, left);
            [vandq_u8(a, mask), vandq_u8(b, mask)]
        }
    }
    #[inline(always)]
    unsafe fn or(a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        unsafe { [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], bytes: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        unsafe {
            let table = vld1q_u8(table.as_ptr());
            [vqtbl1q_u8(table, bytes[0]), vqtbl1q_u8(table, bytes[1])]
        }
    }
    #[inline(always)]
    unsafe fn dot_groups(
        start: [uint8x16_t; 2],
        quants: &[[uint8x16_t; 2]; GROUPS],
        (from, to): (usize, usize),
        x: *const i8,
        bits: usize,
    ) -> [uint8x16_t; 2] {
        unsafe {
            let x = [vld1q_s8(x), vld1q_s8(x.add(16))];
            let mut sums = [
                vreinterpretq_s32_u8(start[0]),
                vreinterpretq_s32_u8(start[1]),
            ];
            // Groups and lanes are constants: each is one instruction for a register.
            macro_rules! add_groups {
                ($($group:literal)*) => {
                    $(if from <= $group && $group < to {
                        let x = x[$group / 4];
                        if PRODUCTS == I8MM {
                            sums[0] = usdot_lane::<{ $group % 4 }>(sums[0], quants[$group][0], x);
                            sums[1] = usdot_lane::<{ $group % 4 }>(sums[1], quants[$group][1], x);
                        } else {
                            let [a, b] = signed(quants[$group], bits);
                            if PRODUCTS == DOTPROD {
                                sums[0] = sdot_lane::<{ $group % 4 }>(sums[0], a, x);
                                sums[1] = sdot_lane::<{ $group % 4 }>(sums[1], b, x);
                            } else {
                                sums[0] = baseline_lane::<{ $group % 4 }>(sums[0], a, x);
                                sums[1] = baseline_lane::<{ $group % 4 }>(sums[1], b, x);
                            }
                        }
                    })*
                };
            }
            add_groups!(0 1 2 3 4 5 6 7);
            [vreinterpretq_u8_s32(sums[0]), vreinterpretq_u8_s32(sums[1])]
        }
    }
    #[inline(always)]
    unsafe fn scaled_sum(sum: [uint8x16_t; 2], x: &ActivationBlock) -> [float32x4_t; 2] {
        unsafe {
            if PRODUCTS == I8MM {
                let minus_magic = vdupq_n_f32(x.minus_magic);
                return [
                    vfmaq_n_f32(minus_magic, vreinterpretq_f32_u8(sum[0]), x.scale),
                    vfmaq_n_f32(minus_magic, vreinterpretq_f32_u8(sum[1]), x.scale),
                ];
            }
            [
                vmulq_n_f32(vcvtq_f32_s32(vreinterpretq_s32_u8(sum[0])), x.scale),
                vmulq_n_f32(vcvtq_f32_s32(vreinterpretq_s32_u8(sum[1])), x.scale),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> [float32x4_t; 2] {
        unsafe { floats_of_u8(vld1_u8(from)) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> [float32x4_t; 2] {
        unsafe {
            let wide = vmovl_s8(vreinterpret_s8_u8(vld1_u8(from)));
            [
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))),
                vcvtq_f32_s32(vmovl_high_s16(wide)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> ([float32x4_t; 2], [float32x4_t; 2]) {
        unsafe {
            let both = vld1_u8(from);
            (
                floats_of_u8(vand_u8(both, vdup_n_u8(15))),
                floats_of_u8(vshr_n_u8::<4>(both)),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> [float32x4_t; 2] {
        unsafe { [vld1q_f32(from.cast()), vld1q_f32(from.add(16).cast())] }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> [float32x4_t; 2] {
        unsafe {
            [
                load_four_f16(from.cast()),
                load_four_f16(from.add(8).cast()),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> [float32x4_t; 2] {
        unsafe {
            let both = vld1q_u16(from.cast());
            [
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(both))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(both)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> [float32x4_t; 2] {
        [unsafe { vdupq_n_f32(x) }; 2]
    }
    #[inline(always)]
    unsafe fn add(a: [float32x4_t; 2], b: [float32x4_t; 2]) -> [float32x4_t; 2] {
        unsafe { [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn mul(a: [float32x4_t; 2], b: [float32x4_t; 2]) -> [float32x4_t; 2] {
        unsafe { [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn mul_add(
        a: [float32x4_t; 2],
        b: [float32x4_t; 2],
        c: [float32x4_t; 2],
    ) -> [float32x4_t; 2] {
        unsafe { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn store(v: [float32x4_t; 2], to: *mut f32) {
        unsafe {
            vst1q_f32(to, v[0]);
            vst1q_f32(to.add(4), v[1]);
        }
    }
}

/// Eight bytes as f32.
#[inline(always)]
unsafe fn floats_of_u8(bytes: uint8x8_t) -> [float32x4_t; 2] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let wide = vmovl_u8(bytes);
        [
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))),
            vcvtq_f32_u32(vmovl_high_u16(wide)),
        ]
    }
}
