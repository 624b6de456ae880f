//! Kernels of dense attention over [`Lanes`]: products of small matrices, and the online softmax of a tile.
//! `attention::dense::reference` defines the results.
//!
//! # Safety
//! All functions: the processor has the level of `L`.

use super::lanes::{Lanes, exp2_of_negative};
use crate::kv::LANES;

/// Vector path of `attention::dense::reference::add_product`.
#[inline(always)]
pub(crate) unsafe fn add_product<L: Lanes>(
    a: &[f32],
    stride: usize,
    inner: usize,
    b: &[f32],
    (c, cols): (&mut [f32], usize),
    is_fresh: bool,
) {
    let n = c.len() / cols;
    assert!(n > 0 && n * cols == c.len() && cols.is_multiple_of(L::WIDTH));
    assert!(a.len() >= (n - 1) * stride + inner && b.len() >= inner * cols);
    let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    let mut row = 0;
    // SAFETY: `n` rows of `a` and of `c`, and `inner` rows of `b`, are in bounds.
    unsafe {
        macro_rules! run {
            ($n:literal) => {
                while n - row >= $n {
                    let (a, c) = (a.add(row * stride), c.add(row * cols));
                    product_rows::<L, $n>((a, stride), inner, b, (c, cols), is_fresh);
                    row += $n;
                }
            };
        }
        run!(6);
        run!(4);
        run!(2);
        run!(1);
    }
}

/// `N` rows: as many vectors of columns at a time as leave registers for them.
#[inline(always)]
unsafe fn product_rows<L: Lanes, const N: usize>(
    a: (*const f32, usize),
    inner: usize,
    b: *const f32,
    (c, cols): (*mut f32, usize),
    is_fresh: bool,
) {
    let mut col = 0;
    // SAFETY: columns up to `cols`, which is a multiple of the width.
    unsafe {
        while col < cols {
            let left = (cols - col) / L::WIDTH;
            let (b, c) = (b.add(col), c.add(col));
            let most = if L::WIDTH == LANES { 4 } else { 2 };
            let vectors = left.min(most);
            match vectors {
                4 => product_block::<L, N, 4>(a, inner, b, (c, cols), is_fresh),
                3 => product_block::<L, N, 3>(a, inner, b, (c, cols), is_fresh),
                2 => product_block::<L, N, 2>(a, inner, b, (c, cols), is_fresh),
                _ => product_block::<L, N, 1>(a, inner, b, (c, cols), is_fresh),
            }
            col += vectors * L::WIDTH;
        }
    }
}

/// `N` rows by `P` vectors of columns.
#[inline(always)]
unsafe fn product_block<L: Lanes, const N: usize, const P: usize>(
    (a, stride): (*const f32, usize),
    inner: usize,
    b: *const f32,
    (c, cols): (*mut f32, usize),
    is_fresh: bool,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[L::splat(0.0); P]; N];
        if !is_fresh {
            for (i, sums) in sums.iter_mut().enumerate() {
                for (p, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load(c.add(i * cols + p * L::WIDTH));
                }
            }
        }
        for k in 0..inner {
            let mut row = [L::splat(0.0); P];
            for (p, row) in row.iter_mut().enumerate() {
                *row = L::load(b.add(k * cols + p * L::WIDTH));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let factor = L::splat(*a.add(i * stride + k));
                for (sum, row) in sums.iter_mut().zip(row) {
                    *sum = factor.mul_add(row, *sum);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (p, sum) in sums.into_iter().enumerate() {
                sum.store(c.add(i * cols + p * L::WIDTH));
            }
        }
    }
}

/// Vector path of `attention::dense::reference::weigh`.
#[inline(always)]
pub(crate) unsafe fn weigh<L: Lanes>(
    scores: &mut [f32],
    maxima: &mut [f32],
    sums: &mut [f32],
    values: &mut [f32],
) {
    let cols = maxima.len();
    let (keys, elements) = (scores.len() / cols, values.len() / cols);
    assert!(scores.len() == keys * cols && values.len() == elements * cols);
    assert!(sums.len() == cols && cols.is_multiple_of(L::WIDTH));
    for col in (0..cols).step_by(L::WIDTH) {
        // SAFETY: a vector of columns is within each line.
        unsafe {
            let scores = scores.as_mut_ptr().add(col);
            let (max, sum) = (maxima.as_mut_ptr().add(col), sums.as_mut_ptr().add(col));
            let old = L::load(max);
            let most = column_maxima::<L>(scores, keys, cols, old);
            // A query whose scores are all -inf keeps tiny weights.
            let zero = L::splat(0.0);
            let shift = most.where_less(L::splat(f32::MIN), zero, most);
            let factor = exp2_of_negative(old.sub(shift));
            let mut part = zero;
            for key in 0..keys {
                let at = scores.add(key * cols);
                let weight = exp2_of_negative(L::load(at).sub(shift));
                weight.store(at);
                part = part.add(weight);
            }
            L::load(sum).mul_add(factor, part).store(sum);
            most.store(max);
            // A factor of one changes nothing.
            if most.spread() != old.spread() {
                let values = values.as_mut_ptr().add(col);
                for element in 0..elements {
                    let at = values.add(element * cols);
                    L::load(at).mul(factor).store(at);
                }
            }
        }
    }
}

/// The maxima of a vector of columns, none below `least`.
#[inline(always)]
unsafe fn column_maxima<L: Lanes>(scores: *const f32, keys: usize, cols: usize, least: L) -> L {
    // Independent chains hide the latency; the order of a maximum does not matter.
    const CHAINS: usize = 4;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut most = [least; CHAINS];
        let whole = keys / CHAINS * CHAINS;
        for key in (0..whole).step_by(CHAINS) {
            for (chain, most) in most.iter_mut().enumerate() {
                *most = most.max(L::load(scores.add((key + chain) * cols)));
            }
        }
        for key in whole..keys {
            most[0] = most[0].max(L::load(scores.add(key * cols)));
        }
        most[0].max(most[1]).max(most[2].max(most[3]))
    }
}

/// Vector path of `attention::dense::reference::widen`.
#[inline(always)]
pub(crate) unsafe fn widen<L: Lanes>(halves: &[u16], floats: &mut [f32]) {
    assert!(halves.len() == floats.len() && halves.len().is_multiple_of(L::WIDTH));
    for i in (0..halves.len()).step_by(L::WIDTH) {
        // SAFETY: whole vectors within both.
        unsafe { L::load_f16(halves.as_ptr().add(i)).store(floats.as_mut_ptr().add(i)) };
    }
}
