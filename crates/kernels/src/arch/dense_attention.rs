//! Kernels of dense attention over [`Lanes`]: products of small matrices, and the online softmax of a tile.
//! `attention::dense::reference` defines the results.
//!
//! # Safety
//! All functions: the processor has the level of `L`.

use super::attention::row_max;
use super::lanes::{Lanes, exp};
use crate::kv::LANES;
use crate::layout::softmax_shift;

/// Vector path of `attention::dense::reference::add_product`.
#[inline(always)]
pub(crate) unsafe fn add_product<L: Lanes>(
    a: &[f32],
    stride: usize,
    inner: usize,
    b: &[f32],
    c: &mut [f32],
    cols: usize,
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
                    product_rows::<L, $n>(a, stride, inner, b, c, cols);
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
    a: *const f32,
    stride: usize,
    inner: usize,
    b: *const f32,
    c: *mut f32,
    cols: usize,
) {
    let mut col = 0;
    // SAFETY: columns up to `cols`, which is a multiple of the width.
    unsafe {
        while col < cols {
            let left = (cols - col) / L::WIDTH;
            let (b, c) = (b.add(col), c.add(col));
            let vectors = match left {
                // Two blocks of about the same length: one vector alone would wait for its own sums.
                5 if L::WIDTH == LANES => 3,
                4.. if L::WIDTH == LANES => 4,
                3 if L::WIDTH == LANES => 3,
                2.. => 2,
                _ => 1,
            };
            match vectors {
                4 => product_block::<L, N, 4>(a, stride, inner, b, c, cols),
                3 => product_block::<L, N, 3>(a, stride, inner, b, c, cols),
                2 => product_block::<L, N, 2>(a, stride, inner, b, c, cols),
                _ => product_block::<L, N, 1>(a, stride, inner, b, c, cols),
            }
            col += vectors * L::WIDTH;
        }
    }
}

/// `N` rows by `P` vectors of columns.
#[inline(always)]
unsafe fn product_block<L: Lanes, const N: usize, const P: usize>(
    a: *const f32,
    stride: usize,
    inner: usize,
    b: *const f32,
    c: *mut f32,
    cols: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[L::splat(0.0); P]; N];
        for (i, sums) in sums.iter_mut().enumerate() {
            for (p, sum) in sums.iter_mut().enumerate() {
                *sum = L::load(c.add(i * cols + p * L::WIDTH));
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
    cols: usize,
) {
    let n = maxima.len();
    let tile = scores.len() / n;
    assert!(scores.len() == n * tile && tile.is_multiple_of(LANES) && sums.len() == n);
    assert!(values.len() == n * cols && cols.is_multiple_of(L::WIDTH));
    for row in 0..n {
        // SAFETY: row `row` of the scores and of the values is in bounds.
        unsafe {
            let at = scores.as_mut_ptr().add(row * tile);
            let most = maxima[row].max(row_max::<L>(at, tile));
            let shift = softmax_shift(most);
            if most != maxima[row] {
                let factor = exp(L::splat(maxima[row] - shift));
                sums[row] *= factor.spread()[0];
                let values = values.as_mut_ptr().add(row * cols);
                for at in (0..cols).step_by(L::WIDTH) {
                    L::load(values.add(at)).mul(factor).store(values.add(at));
                }
                maxima[row] = most;
            }
            // Added in the order of vectors of `LANES` elements at every width.
            let (mut part, shift) = ([L::splat(0.0); 2], L::splat(shift));
            for i in (0..tile).step_by(LANES) {
                for (half, part) in part.iter_mut().take(LANES / L::WIDTH).enumerate() {
                    let at = at.add(i + half * L::WIDTH);
                    let weight = exp(L::load(at).sub(shift));
                    weight.store(at);
                    *part = part.add(weight);
                }
            }
            sums[row] += if L::WIDTH == LANES {
                part[0].sum()
            } else {
                part[0].add(part[1]).sum()
            };
        }
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
