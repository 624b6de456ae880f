//! [`QuantLanes`] of NEON.

use super::{LINES_PER_QUAD, QuantLanes, ScaleGroupView};
use crate::arch::int8_dot::neon::sdot_lane;
use crate::arch::lanes::{Lanes, NeonF32x8};
use crate::arch::prefetch::Prefetcher;
use crate::layout::QUERY_LOW_BITS;
use core::arch::aarch64::*;

/// Sums of products of four slots: of the two planes with dot products, else the first alone.
type SlotSums = [int32x4_t; 2];

/// Four elements of a query.
#[derive(Clone, Copy)]
struct QueryQuad {
    /// Four i16, for the baseline.
    quants: int16x4_t,
    /// The upper plane as signed bytes, then the lower plane.
    planes: int8x16_t,
}

impl QueryQuad {
    /// The elements from `4 * quad` on of query `i`. The upper plane counts from 128, so that flipping its highest bits
    /// makes it signed; the lower plane is below 128.
    #[inline(always)]
    unsafe fn load<const DOTPROD: bool>(at: ScaleGroupView, i: usize, quad: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let element = i * at.elements + quad * 4;
            let mut all = Self {
                quants: vdup_n_s16(0),
                planes: vdupq_n_s8(0),
            };
            if DOTPROD {
                let planes = vld1_u8(at.planes.add(element * 2));
                let planes = veor_u8(planes, vcreate_u8(0x8080_8080));
                all.planes = vreinterpretq_s8_u8(vcombine_u8(planes, planes));
            } else {
                all.quants = vld1_s16(at.queries.add(element));
            }
            all
        }
    }

    /// Adds the products with four elements of each of four slots.
    #[inline(always)]
    unsafe fn add_products<const DOTPROD: bool>(self, keys: int8x16_t, sums: SlotSums) -> SlotSums {
        let [high, low] = sums;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if DOTPROD {
                return [
                    sdot_lane::<0>(high, keys, self.planes),
                    sdot_lane::<1>(low, keys, self.planes),
                ];
            }
            let (a, b) = (vmovl_s8(vget_low_s8(keys)), vmovl_high_s8(keys));
            let query = self.quants;
            let pairs_a = vpaddq_s32(
                vmull_s16(vget_low_s16(a), query),
                vmull_s16(vget_high_s16(a), query),
            );
            let pairs_b = vpaddq_s32(
                vmull_s16(vget_low_s16(b), query),
                vmull_s16(vget_high_s16(b), query),
            );
            [vaddq_s32(high, vpaddq_s32(pairs_a, pairs_b)), low]
        }
    }
}

/// The products with the queries, as f32.
#[inline(always)]
unsafe fn products<const DOTPROD: bool>([high, low]: SlotSums) -> float32x4_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if DOTPROD {
            return vcvtq_f32_s32(vaddq_s32(
                vshlq_n_s32::<{ QUERY_LOW_BITS as i32 }>(high),
                low,
            ));
        }
        vcvtq_f32_s32(high)
    }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl<const DOTPROD: bool> QuantLanes for NeonF32x8<DOTPROD> {
    #[inline(always)]
    unsafe fn dot_scale_group<const N: usize, const P: usize>(
        at: ScaleGroupView,
        prefetcher: &mut Prefetcher,
    ) -> [[Self; P]; N] {
        unsafe {
            let mut sums = [[[[vdupq_n_s32(0); 2]; 2]; P]; N];
            for quad in 0..at.quads {
                (0..LINES_PER_QUAD).for_each(|_| prefetcher.next_line());
                let keys = at.keys.add(quad * at.slots * 4);
                for (i, sums) in sums.iter_mut().enumerate() {
                    let query = QueryQuad::load::<DOTPROD>(at, i, quad);
                    for (p, sums) in sums.iter_mut().enumerate() {
                        for (half, sums) in sums.iter_mut().enumerate() {
                            let keys = vld1q_s8(keys.add(p * 32 + half * 16));
                            *sums = query.add_products::<DOTPROD>(keys, *sums);
                        }
                    }
                }
            }
            let mut dots = [[Self::splat(0.0); P]; N];
            for (dots, sums) in dots.iter_mut().zip(sums) {
                for (dot, [a, b]) in dots.iter_mut().zip(sums) {
                    *dot = Self([products::<DOTPROD>(a), products::<DOTPROD>(b)]);
                }
            }
            dots
        }
    }
    #[inline(always)]
    unsafe fn load_quants(from: *const i8) -> Self {
        unsafe {
            let wide = vmovl_s8(vld1_s8(from));
            Self([
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))),
                vcvtq_f32_s32(vmovl_high_s16(wide)),
            ])
        }
    }
}
