//! Row-wise operations over [`Lanes`].
//!
//! # Safety
//! All functions: the processor has the level of `L`.

use super::lanes::{Lanes, exp, tanh};
use crate::layout::{SWIGLU_ALPHA, SWIGLU_LIMIT};
use crate::packing::LANES;

/// Accumulators of a sum: enough to hide the latency of an addition.
const SUMS: usize = 4;

// Macros instead of functions with closures: a closure is compiled without the target features of the level,
// and each vector instruction in a closure is a function call.

/// Replaces each element of `$slice` by `$body`.
macro_rules! map {
    ($slice:expr, |$x:ident| $body:expr) => {{
        let (at, len) = ($slice.as_mut_ptr(), $slice.len());
        let (whole, rest) = (len / L::WIDTH * L::WIDTH, len % L::WIDTH);
        for i in (0..whole).step_by(L::WIDTH) {
            let $x = L::load(at.add(i));
            $body.store(at.add(i));
        }
        if rest > 0 {
            let $x = L::load_part(at.add(whole), rest);
            $body.store_part(at.add(whole), rest);
        }
    }};
}

/// Stores `$body` of the elements of two slices to `$out`, which may be the first slice; all three have the
/// length of the second slice.
macro_rules! zip {
    ($out:expr, $first:expr, $second:expr, |$x:ident, $y:ident| $body:expr) => {{
        let (out, first): (*mut f32, *const f32) = ($out, $first);
        let (second, len) = ($second.as_ptr(), $second.len());
        let (whole, rest) = (len / L::WIDTH * L::WIDTH, len % L::WIDTH);
        for i in (0..whole).step_by(L::WIDTH) {
            let ($x, $y) = (L::load(first.add(i)), L::load(second.add(i)));
            $body.store(out.add(i));
        }
        if rest > 0 {
            let $x = L::load_part(first.add(whole), rest);
            let $y = L::load_part(second.add(whole), rest);
            $body.store_part(out.add(whole), rest);
        }
    }};
}

/// The order of additions is that of vectors of [`LANES`] elements at every width: a narrower vector has two
/// accumulators in place of one.
#[inline(always)]
pub(crate) unsafe fn sum_of_squares<L: Lanes>(x: &[f32]) -> f32 {
    // SAFETY: loads stay within `x`.
    unsafe {
        let mut sums = [[L::splat(0.0); 2]; SUMS];
        let mut strides = x.chunks_exact(LANES * SUMS);
        for stride in &mut strides {
            for (i, halves) in sums.iter_mut().enumerate() {
                for (half, sum) in halves.iter_mut().take(LANES / L::WIDTH).enumerate() {
                    let v = L::load(stride.as_ptr().add(i * LANES + half * L::WIDTH));
                    *sum = v.mul_add(v, *sum);
                }
            }
        }
        for (rest, halves) in strides.remainder().chunks(LANES).zip(&mut sums) {
            for (rest, sum) in rest.chunks(L::WIDTH).zip(halves) {
                let v = if rest.len() == L::WIDTH {
                    L::load(rest.as_ptr())
                } else {
                    L::load_part(rest.as_ptr(), rest.len())
                };
                *sum = v.mul_add(v, *sum);
            }
        }
        let [a, b, c, d] = sums;
        let low = a[0].add(b[0]).add(c[0].add(d[0]));
        if L::WIDTH == LANES {
            low.sum()
        } else {
            low.add(a[1].add(b[1]).add(c[1].add(d[1]))).sum()
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn product<L: Lanes>(x: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    assert!(x.len() == out.len() && weight.len() == out.len());
    // SAFETY: all slices have the same length.
    unsafe {
        let factor = L::splat(factor);
        zip!(out.as_mut_ptr(), x.as_ptr(), weight, |x, w| x
            .mul(factor)
            .mul(w));
    }
}

#[inline(always)]
pub(crate) unsafe fn product_in_place<L: Lanes>(x: &mut [f32], weight: &[f32], factor: f32) {
    assert_eq!(x.len(), weight.len());
    let at = x.as_mut_ptr();
    // SAFETY: both slices have the same length.
    unsafe {
        let factor = L::splat(factor);
        zip!(at, at, weight, |x, w| x.mul(factor).mul(w));
    }
}

#[inline(always)]
pub(crate) unsafe fn add<L: Lanes>(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len());
    let at = x.as_mut_ptr();
    // SAFETY: both slices have the same length.
    unsafe { zip!(at, at, y, |x, y| x.add(y)) }
}

/// Two roundings, as the reference: no fused operation.
#[inline(always)]
pub(crate) unsafe fn add_product<L: Lanes>(x: &mut [f32], y: &[f32], factor: f32) {
    assert_eq!(x.len(), y.len());
    let at = x.as_mut_ptr();
    // SAFETY: both slices have the same length.
    unsafe {
        let factor = L::splat(factor);
        zip!(at, at, y, |x, y| x.add(y.mul(factor)));
    }
}

#[inline(always)]
pub(crate) unsafe fn add_products<L: Lanes>(x: &mut [f32], a: &[f32], b: &[f32]) {
    assert!(x.len() == a.len() && x.len() == b.len());
    let (at, a, len) = (x.as_mut_ptr(), a.as_ptr(), b.len());
    let (whole, rest) = (len / L::WIDTH * L::WIDTH, len % L::WIDTH);
    let b = b.as_ptr();
    // SAFETY: all slices have the same length.
    unsafe {
        for i in (0..whole).step_by(L::WIDTH) {
            let product = L::load(a.add(i)).mul_add(L::load(b.add(i)), L::load(at.add(i)));
            product.store(at.add(i));
        }
        if rest > 0 {
            let (x, a) = (
                L::load_part(at.add(whole), rest),
                L::load_part(a.add(whole), rest),
            );
            let product = a.mul_add(L::load_part(b.add(whole), rest), x);
            product.store_part(at.add(whole), rest);
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn exp_shifted<L: Lanes>(x: &mut [f32], shift: f32) {
    // SAFETY: the contract of the module.
    unsafe {
        let shift = L::splat(shift);
        map!(x, |x| exp(x.sub(shift)));
    }
}

#[inline(always)]
pub(crate) unsafe fn scale<L: Lanes>(x: &mut [f32], factor: f32) {
    // SAFETY: the contract of the module.
    unsafe {
        let factor = L::splat(factor);
        map!(x, |x| x.mul(factor));
    }
}

/// `x / (1 + e^-y)`.
#[inline(always)]
unsafe fn gated<L: Lanes>(x: L, y: L) -> L {
    // SAFETY: the contract of the module.
    unsafe { x.div(L::splat(1.0).add(exp(L::splat(0.0).sub(y)))) }
}

#[inline(always)]
pub(crate) unsafe fn silu<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    let at = gate.as_mut_ptr();
    // SAFETY: both slices have the same length.
    unsafe { zip!(at, at, up, |x, up| gated(x, x).mul(up)) }
}

/// The second operand of the bound is the one that may be NaN, and stays.
#[inline(always)]
pub(crate) unsafe fn squared_relu<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    let at = gate.as_mut_ptr();
    // SAFETY: both slices have the same length.
    unsafe {
        let zero = L::splat(0.0);
        zip!(at, at, up, |x, up| {
            let x = zero.max(x);
            x.mul(x).mul(up)
        });
    }
}

/// The second operand of a bound is the one that may be NaN, and stays.
#[inline(always)]
pub(crate) unsafe fn clamped_swiglu<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    let at = gate.as_mut_ptr();
    // SAFETY: both slices have the same length.
    unsafe {
        let (most, least) = (L::splat(SWIGLU_LIMIT), L::splat(-SWIGLU_LIMIT));
        let (alpha, one) = (L::splat(SWIGLU_ALPHA), L::splat(1.0));
        zip!(at, at, up, |x, up| {
            let x = most.min(x);
            let up = least.max(most.min(up));
            gated(x, alpha.mul(x)).mul(up.add(one))
        });
    }
}

#[inline(always)]
pub(crate) unsafe fn silu_in_place<L: Lanes>(x: &mut [f32]) {
    // SAFETY: the contract of the module.
    unsafe { map!(x, |x| gated(x, x)) }
}

#[inline(always)]
pub(crate) unsafe fn quick_gelu_in_place<L: Lanes>(x: &mut [f32]) {
    // SAFETY: the contract of the module.
    unsafe { map!(x, |x| gated(x, L::splat(SWIGLU_ALPHA).mul(x))) }
}

#[inline(always)]
pub(crate) unsafe fn sigmoid<L: Lanes>(x: &mut [f32], gate: &[f32]) {
    assert_eq!(x.len(), gate.len());
    let at = x.as_mut_ptr();
    // SAFETY: both slices have the same length.
    unsafe { zip!(at, at, gate, |x, gate| gated(x, gate)) }
}

#[inline(always)]
pub(crate) unsafe fn gelu<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    let at = gate.as_mut_ptr();
    // SAFETY: both slices have the same length.
    unsafe {
        // 2 sqrt(2 / pi), and 2 sqrt(2 / pi) times 0.044715.
        let (linear, cubic) = (L::splat(1.595_769), L::splat(0.071_354_816));
        zip!(at, at, up, |x, up| {
            let u = x.mul(x.mul(x).mul_add(cubic, linear));
            gated(x, u).mul(up)
        });
    }
}

#[inline(always)]
pub(crate) unsafe fn softcap<L: Lanes>(x: &mut [f32], cap: f32) {
    // SAFETY: the contract of the module.
    unsafe {
        let cap = L::splat(cap);
        map!(x, |x| tanh(x.div(cap)).mul(cap));
    }
}

/// Vector path of `matmul::amx_gemm::interleave_lines`. Scalar code would call a function for each line.
#[inline(always)]
pub(crate) unsafe fn interleave_lines<L: Lanes>(
    lines: &[f32],
    distance: [usize; 2],
    to: &mut [f32],
) {
    for (i, to) in to.chunks_exact_mut(LANES).enumerate() {
        let line = &lines[i % 2 * distance[0] + i / 2 * distance[1]..][..LANES];
        for at in (0..LANES).step_by(L::WIDTH) {
            // SAFETY: whole vectors within both.
            unsafe { L::load(line.as_ptr().add(at)).store(to.as_mut_ptr().add(at)) };
        }
    }
}
