//! Attention kernels over [`Lanes`]: QK scores, softmax, PV accumulation, partial softmax merge.
//!
//! Each (query, position) score and each (query, element) sum is one chain of fused multiply-adds in rising
//! order, whatever the number of queries and vectors in registers.
//!
//! # Safety
//! All functions: the processor has the level of `L`.

use super::lanes::{Lanes, exp};
use super::prefetch::Prefetcher;
use crate::kv::LANES;
use crate::layout::softmax_shift;

/// Vector path of `attention::reference::qk_scores`.
#[inline(always)]
pub(crate) unsafe fn qk_scores<L: Lanes>(
    queries: &[f32],
    dim: usize,
    keys: &[u16],
    scores: &mut [f32],
    stride: usize,
    upcoming: &[u16],
) {
    let mut prefetcher = Prefetcher::new(upcoming);
    let (n, slots) = (queries.len() / dim, keys.len() / dim);
    assert!(n * dim == queries.len() && slots * dim == keys.len() && slots.is_multiple_of(LANES));
    assert!(slots <= stride && scores.len() >= (n - 1) * stride + slots);
    let mut first = 0;
    // SAFETY: `n` queries of `dim`, `dim` rows of `slots` keys, and `n` rows of scores are in bounds.
    unsafe {
        macro_rules! run {
            ($n:literal) => {
                while n - first >= $n {
                    let queries = queries.as_ptr().add(first * dim);
                    let scores = scores.as_mut_ptr().add(first * stride);
                    let keys = keys.as_ptr();
                    qk_rows::<L, $n>(queries, dim, keys, slots, scores, stride, &mut prefetcher);
                    first += $n;
                }
            };
        }
        if L::WIDTH == 16 {
            run!(8);
        }
        run!(4);
        run!(2);
        run!(1);
    }
    prefetcher.remaining_lines();
}

#[inline(always)]
unsafe fn qk_rows<L: Lanes, const N: usize>(
    queries: *const f32,
    dim: usize,
    keys: *const u16,
    slots: usize,
    scores: *mut f32,
    stride: usize,
    prefetcher: &mut Prefetcher,
) {
    let mut slot = 0;
    // SAFETY: slots up to `slots`, which is a multiple of every width.
    unsafe {
        while slot + 2 * L::WIDTH <= slots {
            qk_block::<L, N, 2>(
                queries,
                dim,
                keys.add(slot),
                slots,
                scores.add(slot),
                stride,
                prefetcher,
            );
            slot += 2 * L::WIDTH;
        }
        while slot < slots {
            qk_block::<L, N, 1>(
                queries,
                dim,
                keys.add(slot),
                slots,
                scores.add(slot),
                stride,
                prefetcher,
            );
            slot += L::WIDTH;
        }
    }
}

/// Scores of `N` queries by `P` vectors of slots.
#[inline(always)]
unsafe fn qk_block<L: Lanes, const N: usize, const P: usize>(
    queries: *const f32,
    dim: usize,
    keys: *const u16,
    slots: usize,
    scores: *mut f32,
    stride: usize,
    prefetcher: &mut Prefetcher,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[L::splat(0.0); P]; N];
        for d in 0..dim {
            prefetcher.next_line();
            let mut key = [L::splat(0.0); P];
            for (p, key) in key.iter_mut().enumerate() {
                *key = L::load_f16(keys.add(d * slots + p * L::WIDTH));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let query = L::splat(*queries.add(i * dim + d));
                for (sum, key) in sums.iter_mut().zip(key) {
                    *sum = query.mul_add(key, *sum);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (p, sum) in sums.into_iter().enumerate() {
                sum.store(scores.add(i * stride + p * L::WIDTH));
            }
        }
    }
}

/// The maximum of whole vectors; a NaN may be ignored.
#[inline(always)]
unsafe fn row_max<L: Lanes>(at: *const f32, len: usize) -> f32 {
    // Independent chains hide the latency; the order of a maximum does not matter.
    const CHAINS: usize = 4;
    // SAFETY: whole vectors within `len`.
    unsafe {
        let mut most = [L::splat(f32::NEG_INFINITY); CHAINS];
        let whole = len / (CHAINS * L::WIDTH) * (CHAINS * L::WIDTH);
        for i in (0..whole).step_by(CHAINS * L::WIDTH) {
            for (chain, most) in most.iter_mut().enumerate() {
                *most = most.max(L::load(at.add(i + chain * L::WIDTH)));
            }
        }
        for i in (whole..len).step_by(L::WIDTH) {
            most[0] = most[0].max(L::load(at.add(i)));
        }
        most[0].max(most[1]).max(most[2].max(most[3])).largest()
    }
}

/// Vector path of `attention::reference::softmax`.
#[inline(always)]
pub(crate) unsafe fn softmax<L: Lanes>(scores: &mut [f32]) -> (f32, f32) {
    assert!(scores.len().is_multiple_of(LANES));
    let (at, len) = (scores.as_mut_ptr(), scores.len());
    // SAFETY: whole vectors within `scores`.
    unsafe {
        let max = row_max::<L>(at, len);
        // Added in the order of vectors of `LANES` elements at every width.
        let (mut sums, shift) = ([L::splat(0.0); 2], L::splat(softmax_shift(max)));
        for i in (0..len).step_by(LANES) {
            for (half, sum) in sums.iter_mut().take(LANES / L::WIDTH).enumerate() {
                let at = at.add(i + half * L::WIDTH);
                let weight = exp(L::load(at).sub(shift));
                weight.store(at);
                *sum = sum.add(weight);
            }
        }
        let sum = if L::WIDTH == LANES {
            sums[0].sum()
        } else {
            sums[0].add(sums[1]).sum()
        };
        (max, sum)
    }
}

/// Vector path of `attention::reference::accumulate_pv`.
#[inline(always)]
pub(crate) unsafe fn accumulate_pv<L: Lanes>(
    sums: &mut [f32],
    elements: usize,
    weights: &[f32],
    stride: usize,
    values: &[u16],
    upcoming: &[u16],
) {
    let mut prefetcher = Prefetcher::new(upcoming);
    let (n, count) = (sums.len() / elements, values.len() / elements);
    assert!(n * elements == sums.len() && count * elements == values.len());
    assert!(elements.is_multiple_of(LANES) && weights.len() >= (n - 1) * stride + count);
    let mut first = 0;
    // SAFETY: `n` rows of sums and of weights and `count` rows of values are in bounds.
    unsafe {
        macro_rules! run {
            ($n:literal, $p:literal) => {
                while n - first >= $n {
                    let sums = sums.as_mut_ptr().add(first * elements);
                    let weights = weights.as_ptr().add(first * stride);
                    pv_rows::<L, $n, $p>(sums, elements, weights, stride, values, &mut prefetcher);
                    first += $n;
                }
            };
        }
        if L::WIDTH == 16 {
            run!(8, 2);
        }
        run!(4, 2);
        run!(2, 4);
        run!(1, 4);
    }
    prefetcher.remaining_lines();
}

#[inline(always)]
unsafe fn pv_rows<L: Lanes, const N: usize, const P: usize>(
    sums: *mut f32,
    elements: usize,
    weights: *const f32,
    stride: usize,
    values: &[u16],
    prefetcher: &mut Prefetcher,
) {
    let (mut e, count, values) = (0, values.len() / elements, values.as_ptr());
    // SAFETY: elements up to `elements`, which is a multiple of every width.
    unsafe {
        while e + P * L::WIDTH <= elements {
            let (sums, values) = (sums.add(e), values.add(e));
            pv_block::<L, N, P>(sums, elements, weights, stride, values, count, prefetcher);
            e += P * L::WIDTH;
        }
        while e < elements {
            let (sums, values) = (sums.add(e), values.add(e));
            pv_block::<L, N, 1>(sums, elements, weights, stride, values, count, prefetcher);
            e += L::WIDTH;
        }
    }
}

/// PV sums of `N` queries by `P` vectors of elements.
#[inline(always)]
unsafe fn pv_block<L: Lanes, const N: usize, const P: usize>(
    sums: *mut f32,
    elements: usize,
    weights: *const f32,
    stride: usize,
    values: *const u16,
    count: usize,
    prefetcher: &mut Prefetcher,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut acc = [[L::splat(0.0); P]; N];
        for (i, acc) in acc.iter_mut().enumerate() {
            for (p, acc) in acc.iter_mut().enumerate() {
                *acc = L::load(sums.add(i * elements + p * L::WIDTH));
            }
        }
        for t in 0..count {
            prefetcher.next_line();
            let mut value = [L::splat(0.0); P];
            for (p, value) in value.iter_mut().enumerate() {
                *value = L::load_f16(values.add(t * elements + p * L::WIDTH));
            }
            for (i, acc) in acc.iter_mut().enumerate() {
                let weight = L::splat(*weights.add(i * stride + t));
                for (acc, value) in acc.iter_mut().zip(value) {
                    *acc = weight.mul_add(value, *acc);
                }
            }
        }
        for (i, acc) in acc.into_iter().enumerate() {
            for (p, acc) in acc.into_iter().enumerate() {
                acc.store(sums.add(i * elements + p * L::WIDTH));
            }
        }
    }
}

/// Vector path of `attention::reference::rescale_add`.
#[inline(always)]
pub(crate) unsafe fn rescale_add<L: Lanes>(merged: &mut [f32], old: f32, part: &[f32], new: f32) {
    assert!(merged.len() == part.len() && merged.len().is_multiple_of(LANES));
    // SAFETY: whole vectors within both.
    unsafe {
        let (old, new) = (L::splat(old), L::splat(new));
        for i in (0..merged.len()).step_by(L::WIDTH) {
            let at = merged.as_mut_ptr().add(i);
            let fresh = L::load(part.as_ptr().add(i)).mul(new);
            L::load(at).mul_add(old, fresh).store(at);
        }
    }
}
