//! Row-wise operations over [`Lanes`].
//!
//! # Safety
//! All functions: the processor has the level of `L`; slices that are walked together are as long as
//! the first (the callers in `ops` check).

use super::lanes::{Lanes, exp, tanh};

/// Accumulators of a sum: enough to hide the latency of an addition.
const SUMS: usize = 4;

/// Replaces each element of `x` by a function of it.
#[inline(always)]
unsafe fn map<L: Lanes>(x: &mut [f32], f: impl Fn(L) -> L) {
    let (at, len) = (x.as_mut_ptr(), x.len());
    let whole = len / L::WIDTH * L::WIDTH;
    // SAFETY: whole vectors lie within `x`, and the rest is loaded and stored by its length.
    unsafe {
        for i in (0..whole).step_by(L::WIDTH) {
            f(L::load(at.add(i))).store(at.add(i));
        }
        if whole < len {
            f(L::load_part(at.add(whole), len - whole)).store_part(at.add(whole), len - whole);
        }
    }
}

/// Stores a function of `x`'s and `y`'s elements through `out`, which may be `x`'s own place.
#[inline(always)]
unsafe fn zip<L: Lanes>(
    out: *mut f32,
    x: *const f32,
    y: *const f32,
    len: usize,
    f: impl Fn(L, L) -> L,
) {
    let whole = len / L::WIDTH * L::WIDTH;
    // SAFETY: all three are good for `len` elements by the callers' slices.
    unsafe {
        for i in (0..whole).step_by(L::WIDTH) {
            f(L::load(x.add(i)), L::load(y.add(i))).store(out.add(i));
        }
        let rest = len - whole;
        if rest > 0 {
            let (x, y) = (
                L::load_part(x.add(whole), rest),
                L::load_part(y.add(whole), rest),
            );
            f(x, y).store_part(out.add(whole), rest);
        }
    }
}

/// [`zip`] of a slice with another, in place.
#[inline(always)]
unsafe fn zip_in_place<L: Lanes>(x: &mut [f32], y: &[f32], f: impl Fn(L, L) -> L) {
    debug_assert_eq!(x.len(), y.len());
    let at = x.as_mut_ptr();
    // SAFETY: both are `x.len()` long.
    unsafe { zip(at, at, y.as_ptr(), x.len(), f) }
}

#[inline(always)]
pub(crate) unsafe fn sum_of_squares<L: Lanes>(x: &[f32]) -> f32 {
    // SAFETY: loads stay within `x`.
    unsafe {
        let mut sums = [L::splat(0.0); SUMS];
        let mut strides = x.chunks_exact(L::WIDTH * SUMS);
        for stride in &mut strides {
            for (i, sum) in sums.iter_mut().enumerate() {
                let v = L::load(stride.as_ptr().add(i * L::WIDTH));
                *sum = v.mul_add(v, *sum);
            }
        }
        for (rest, sum) in strides.remainder().chunks(L::WIDTH).zip(&mut sums) {
            let v = if rest.len() == L::WIDTH {
                L::load(rest.as_ptr())
            } else {
                L::load_part(rest.as_ptr(), rest.len())
            };
            *sum = v.mul_add(v, *sum);
        }
        sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum()
    }
}

#[inline(always)]
pub(crate) unsafe fn product<L: Lanes>(x: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    debug_assert!(x.len() == out.len() && weight.len() == out.len());
    // SAFETY: all are as long as `out`.
    unsafe {
        let factor = L::splat(factor);
        zip(
            out.as_mut_ptr(),
            x.as_ptr(),
            weight.as_ptr(),
            out.len(),
            |x: L, w| x.mul(factor).mul(w),
        );
    }
}

#[inline(always)]
pub(crate) unsafe fn product_in_place<L: Lanes>(x: &mut [f32], weight: &[f32], factor: f32) {
    // SAFETY: the module's promise.
    unsafe {
        let factor = L::splat(factor);
        zip_in_place(x, weight, |x: L, w| x.mul(factor).mul(w));
    }
}

#[inline(always)]
pub(crate) unsafe fn add<L: Lanes>(x: &mut [f32], y: &[f32]) {
    // SAFETY: the module's promise.
    unsafe { zip_in_place(x, y, |x: L, y| x.add(y)) }
}

#[inline(always)]
pub(crate) unsafe fn scale<L: Lanes>(x: &mut [f32], factor: f32) {
    // SAFETY: the module's promise.
    unsafe { map(x, |x: L| x.mul(L::splat(factor))) }
}

/// `x / (1 + e^-y)`.
#[inline(always)]
unsafe fn gated<L: Lanes>(x: L, y: L) -> L {
    // SAFETY: the module's promise.
    unsafe { x.div(L::splat(1.0).add(exp(L::splat(0.0).sub(y)))) }
}

#[inline(always)]
pub(crate) unsafe fn silu<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    // SAFETY: the module's promise.
    unsafe { zip_in_place(gate, up, |x: L, up| gated(x, x).mul(up)) }
}

#[inline(always)]
pub(crate) unsafe fn gelu<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    // SAFETY: the module's promise.
    unsafe {
        zip_in_place(gate, up, |x: L, up| {
            // Twice sqrt(2 / pi), and the same times 0.044715.
            let cubic = x
                .mul(x)
                .mul_add(L::splat(0.071_354_816), L::splat(1.595_769_1));
            gated(x, x.mul(cubic)).mul(up)
        });
    }
}

#[inline(always)]
pub(crate) unsafe fn softcap<L: Lanes>(x: &mut [f32], cap: f32) {
    // SAFETY: the module's promise.
    unsafe {
        let cap = L::splat(cap);
        map(x, |x: L| tanh(x.div(cap)).mul(cap));
    }
}
