//! [`Lanes`] of NEON. Two registers make a vector of eight elements, as wide as one of AVX2: so kernels keep as many sums
//! in registers, and add in the same order.

use super::Lanes;
use core::arch::aarch64::*;

/// Eight f32 of NEON; with `DOTPROD` the level has dot products of bytes, too.
#[derive(Clone, Copy)]
pub(crate) struct NeonF32x8<const DOTPROD: bool>(pub(in crate::arch) [float32x4_t; 2]);

/// Applies `$body` to the halves of vectors.
macro_rules! halves {
    (|$($half:ident = $from:ident),*| $body:expr) => {
        Self([
            { $(let $half = $from.0[0];)* $body },
            { $(let $half = $from.0[1];)* $body },
        ])
    };
}

/// Four f16 at the pointer, as f32.
#[inline(always)]
pub(in crate::arch) unsafe fn load_four_f16(from: *const u16) -> float32x4_t {
    // SAFETY: guaranteed by the caller.
    unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))) }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl<const DOTPROD: bool> Lanes for NeonF32x8<DOTPROD> {
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([unsafe { vdupq_n_f32(x) }; 2])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { Self([vld1q_f32(from), vld1q_f32(from.add(4))]) }
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self {
        let mut all = [0.0; 8];
        unsafe {
            std::ptr::copy_nonoverlapping(from, all.as_mut_ptr(), n);
            Self::load(all.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        unsafe { Self([load_four_f16(from), load_four_f16(from.add(4))]) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe {
            vst1q_f32(to, self.0[0]);
            vst1q_f32(to.add(4), self.0[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        let mut all = [0.0; 8];
        unsafe {
            self.store(all.as_mut_ptr());
            std::ptr::copy_nonoverlapping(all.as_ptr(), to, n);
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        halves!(|a = self, b = other| unsafe { vaddq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        halves!(|a = self, b = other| unsafe { vsubq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        halves!(|a = self, b = other| unsafe { vmulq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        halves!(|a = self, b = other| unsafe { vdivq_f32(a, b) })
    }
    // NEON's own maximum and minimum have other results for NaN.
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        halves!(|a = self, b = other| unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        halves!(|a = self, b = other| unsafe { vbslq_f32(vcltq_f32(a, b), a, b) })
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        halves!(|a = self, b = b, c = c| unsafe { vfmaq_f32(c, a, b) })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        halves!(|a = self| unsafe { vabsq_f32(a) })
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        halves!(|a = self| unsafe { vrndnq_f32(a) })
    }
    #[inline(always)]
    unsafe fn scale_by_power(self, n: Self) -> Self {
        // Two factors, since 2^n itself may overflow f32 where the product does not.
        halves!(|a = self, n = n| unsafe {
            let n = vcvtnq_s32_f32(n);
            let half = vshrq_n_s32::<1>(n);
            let rest = vsubq_s32(n, half);
            let bias = vdupq_n_s32(127);
            let half = vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(half, bias)));
            let rest = vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(rest, bias)));
            vmulq_f32(vmulq_f32(a, half), rest)
        })
    }
    #[inline(always)]
    unsafe fn where_less(self, other: Self, a: Self, b: Self) -> Self {
        halves!(|x = self, y = other, a = a, b = b| unsafe {
            vbslq_f32(vcltq_f32(x, y), a, b)
        })
    }
}
