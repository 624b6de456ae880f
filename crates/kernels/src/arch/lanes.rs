//! f32 vectors under common names, so that a kernel is written once for AVX2, AVX-512 and NEON.
//!
//! Methods are `unsafe` and always inlined: only functions compiled for the level (`#[target_feature]`), which
//! `by_isa!` writes, may call them. Then each method is one or two instructions.

#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::NeonF32x8;
#[cfg(target_arch = "aarch64")]
pub(super) use neon::load_four_f16;

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m256, __m512, _CMP_LT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128,
    _mm256_add_epi32, _mm256_add_ps, _mm256_and_ps, _mm256_blendv_ps, _mm256_castps_si256,
    _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cmpgt_epi32, _mm256_cvtph_ps, _mm256_cvtps_epi32,
    _mm256_div_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps,
    _mm256_maskstore_ps, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_round_ps,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_slli_epi32, _mm256_srai_epi32,
    _mm256_storeu_ps, _mm256_sub_epi32, _mm256_sub_ps, _mm512_abs_ps, _mm512_add_ps,
    _mm512_cmp_ps_mask, _mm512_cvtph_ps, _mm512_div_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_mask_blend_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_max_ps,
    _mm512_min_ps, _mm512_mul_ps, _mm512_roundscale_ps, _mm512_scalef_ps, _mm512_set1_ps,
    _mm512_storeu_ps, _mm512_sub_ps,
};

/// A vector of `WIDTH` f32.
///
/// # Safety
/// Of every method: the processor has the level, and pointers are valid for `WIDTH` elements (or `n`).
pub(crate) trait Lanes: Copy {
    /// Elements.
    const WIDTH: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    /// The first `n < WIDTH` elements, then zeros.
    unsafe fn load_part(from: *const f32, n: usize) -> Self;
    unsafe fn load_f16(from: *const u16) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Stores the first `n < WIDTH` elements.
    unsafe fn store_part(self, to: *mut f32, n: usize);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// The maximum; `other` if either is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// The minimum; `other` if either is NaN.
    unsafe fn min(self, other: Self) -> Self;
    /// `self * b + c`, rounded once.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    unsafe fn abs(self) -> Self;
    /// Rounds to the nearest integer.
    unsafe fn round(self) -> Self;
    /// `self * 2^n` for integers `n` in `-254..=254`.
    unsafe fn scale_by_power(self, n: Self) -> Self;
    /// `self * 2^n` for integers `n` in `-126..=0`, if the result is normal.
    #[inline(always)]
    unsafe fn scale_down(self, n: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { self.scale_by_power(n) }
    }
    /// `a` where `self < other`, else `b`.
    unsafe fn where_less(self, other: Self, a: Self, b: Self) -> Self;

    /// Stores all elements into the first `WIDTH` elements of an array.
    #[inline(always)]
    unsafe fn spread(self) -> [f32; 16] {
        let mut all = [0.0; 16];
        // SAFETY: WIDTH is at most 16.
        unsafe { self.store(all.as_mut_ptr()) };
        all
    }

    /// The sum in a fixed order: the upper half is added to the lower half until one element is left.
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: guaranteed by the caller.
        let mut all = unsafe { self.spread() };
        let mut half = Self::WIDTH / 2;
        while half > 0 {
            for i in 0..half {
                all[i] += all[i + half];
            }
            half /= 2;
        }
        all[0]
    }

    /// The maximum of the elements; NaN is ignored.
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: guaranteed by the caller.
        let all = unsafe { self.spread() };
        all[..Self::WIDTH]
            .iter()
            .fold(f32::NEG_INFINITY, |a, b| a.max(*b))
    }
}

/// Eight f32 of AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct F32x8(pub(super) __m256);

/// Sixteen f32 of AVX-512.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct F32x16(pub(super) __m512);

/// Mask of the first `n` of eight elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first(n: usize) -> core::arch::x86_64::__m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        _mm256_cmpgt_epi32(
            _mm256_set1_epi32(n as i32),
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        )
    }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[cfg(target_arch = "x86_64")]
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl Lanes for F32x8 {
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self(unsafe { _mm256_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Self(unsafe { _mm256_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self {
        Self(unsafe { _mm256_maskload_ps(from, first(n)) })
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        unsafe { _mm256_maskstore_ps(to, first(n), self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(unsafe { _mm256_add_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Self(unsafe { _mm256_sub_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(unsafe { _mm256_mul_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        Self(unsafe { _mm256_div_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Self(unsafe { _mm256_max_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        Self(unsafe { _mm256_min_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Self(unsafe { _mm256_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Self(unsafe { _mm256_and_ps(self.0, _mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX))) })
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        Self(unsafe {
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }
    #[inline(always)]
    unsafe fn scale_by_power(self, n: Self) -> Self {
        // Two factors, since 2^n itself may overflow f32 where the product does not.
        unsafe {
            let n = _mm256_cvtps_epi32(n.0);
            let half = _mm256_srai_epi32::<1>(n);
            let rest = _mm256_sub_epi32(n, half);
            let bias = _mm256_set1_epi32(127);
            let a = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(half, bias)));
            let b = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(rest, bias)));
            Self(_mm256_mul_ps(_mm256_mul_ps(self.0, a), b))
        }
    }
    #[inline(always)]
    unsafe fn scale_down(self, n: Self) -> Self {
        // The exponent of a normal result is positive: no carry, and no units that multiply.
        unsafe {
            let n = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n.0));
            let bits = _mm256_add_epi32(_mm256_castps_si256(self.0), n);
            Self(_mm256_castsi256_ps(bits))
        }
    }
    #[inline(always)]
    unsafe fn where_less(self, other: Self, a: Self, b: Self) -> Self {
        unsafe {
            let less = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0);
            Self(_mm256_blendv_ps(b.0, a.0, less))
        }
    }
}

// SAFETY of all blocks: the contract of the trait (the level is present, the pointers are valid).
#[cfg(target_arch = "x86_64")]
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl Lanes for F32x16 {
    const WIDTH: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Self(unsafe { _mm512_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self {
        Self(unsafe { _mm512_maskz_loadu_ps((1u16 << n) - 1, from) })
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        unsafe { _mm512_mask_storeu_ps(to, (1u16 << n) - 1, self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Self(unsafe { _mm512_sub_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        Self(unsafe { _mm512_div_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Self(unsafe { _mm512_max_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        Self(unsafe { _mm512_min_ps(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Self(unsafe { _mm512_abs_ps(self.0) })
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        Self(unsafe {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }
    #[inline(always)]
    unsafe fn scale_by_power(self, n: Self) -> Self {
        Self(unsafe { _mm512_scalef_ps(self.0, n.0) })
    }
    #[inline(always)]
    unsafe fn where_less(self, other: Self, a: Self, b: Self) -> Self {
        unsafe {
            let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0);
            Self(_mm512_mask_blend_ps(less, b.0, a.0))
        }
    }
}

/// `e^x`: within 1.5 ULP where the result is normal, and within one unit of the smallest number below; infinite
/// above; NaN for NaN.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn exp<L: Lanes>(x: L) -> L {
    // Cephes' expf: e^x = 2^n e^r with |r| <= ln(2) / 2, and ln(2) in two parts.
    // SAFETY: guaranteed by the caller.
    unsafe {
        let x = L::splat(89.0).min(L::splat(-105.0).max(x));
        let n = x.mul(L::splat(std::f32::consts::LOG2_E)).round();
        let r = n.mul_add(L::splat(-0.693_359_4), x);
        let r = n.mul_add(L::splat(2.121_944_4e-4), r);
        let p = L::splat(1.987_569_1e-4).mul_add(r, L::splat(1.398_199_9e-3));
        let p = p.mul_add(r, L::splat(8.333_452e-3));
        let p = p.mul_add(r, L::splat(4.166_579_6e-2));
        let p = p.mul_add(r, L::splat(1.666_666_5e-1));
        let p = p.mul_add(r, L::splat(0.5));
        let p = p.mul_add(r.mul(r), r).add(L::splat(1.0));
        p.scale_by_power(n)
    }
}

/// `2^x` for `x` of at most 0, with relative error 2^-22, and exactly 1 for 0; 2^-126 for less than -126, NaN for NaN.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
#[expect(clippy::approx_constant, reason = "a coefficient of the polynomial")]
pub(crate) unsafe fn exp2_of_negative<L: Lanes>(x: L) -> L {
    // 2^x = 2^n 2^r with |r| <= 1/2; the polynomial of 2^r has minimal relative error with a constant term of 1.
    // SAFETY: guaranteed by the caller.
    unsafe {
        let x = L::splat(-126.0).max(x);
        let n = x.round();
        let r = x.sub(n);
        let p = L::splat(1.326_472_7e-3).mul_add(r, L::splat(9.671_513e-3));
        let p = p.mul_add(r, L::splat(5.550_733_6e-2));
        let p = p.mul_add(r, L::splat(0.240_222_42));
        let p = p.mul_add(r, L::splat(0.693_147));
        p.mul_add(r, L::splat(1.0)).scale_down(n)
    }
}

/// `tanh(x)` within 3 ULP (the reference implementation is the C library's, with the same error bound).
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn tanh<L: Lanes>(x: L) -> L {
    // Cephes' tanhf: a polynomial near zero, where the formula with e^x loses digits.
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (one, two) = (L::splat(1.0), L::splat(2.0));
        let far = one.sub(two.div(exp(x.add(x)).add(one)));
        let z = x.mul(x);
        let p = L::splat(-5.704_988_7e-3).mul_add(z, L::splat(2.063_909e-2));
        let p = p.mul_add(z, L::splat(-5.373_971_6e-2));
        let p = p.mul_add(z, L::splat(1.333_144_2e-1));
        let p = p.mul_add(z, L::splat(-3.333_328e-1));
        let near = p.mul_add(z.mul(x), x);
        x.abs().where_less(L::splat(0.625), near, far)
    }
}
