//! Attention kernels over an int8 KV cache.
//!
//! The product of a query with a scale group of keys is an integer, so the order of its additions does not
//! matter; scale groups are added in rising order, and so are values. The reference implementation is
//! `attention::int8`.
//!
//! # Safety
//! All functions: the processor has the level of `L`.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::lanes::Lanes;
use super::prefetch::Prefetcher;
use crate::kv::{LANES, QuantizedKv, SCALE_GROUP};
use crate::layout::QuantizedQueries;

/// Pointers to queries and keys of one scale group.
#[derive(Clone, Copy)]
pub(crate) struct ScaleGroupView {
    /// `(queries, elements)`.
    queries: *const i16,
    /// `(queries, elements / 4, 2, 4)`.
    planes: *const u8,
    elements: usize,
    /// `(quads, slots, 4)`.
    keys: *const i8,
    slots: usize,
    quads: usize,
}

/// Prefetched lines per four elements of keys; the products hide twice as many loads.
const LINES_PER_QUAD: usize = 2;

/// Operations that differ between levels beyond the vector width.
///
/// # Safety
/// As [`Lanes`].
pub(crate) trait QuantLanes: Lanes {
    /// Products of `N` queries with `P` vectors of slots over one scale group.
    unsafe fn dot_scale_group<const N: usize, const P: usize>(
        at: ScaleGroupView,
        prefetcher: &mut Prefetcher,
    ) -> [[Self; P]; N];
    /// Quants as f32.
    unsafe fn load_quants(from: *const i8) -> Self;
}

/// Vector path of `attention::int8::qk_scores`.
#[inline(always)]
pub(crate) unsafe fn qk_scores<L: QuantLanes>(
    queries: QuantizedQueries<'_>,
    keys: QuantizedKv<'_>,
    scores: &mut [f32],
    stride: usize,
    upcoming: &[u16],
) {
    let mut prefetcher = Prefetcher::new(upcoming);
    let (n, elements) = (queries.scales.len(), queries.elements);
    let slots = keys.quants.len() / elements;
    assert!(n * elements == queries.quants.len() && 2 * n * elements == queries.planes.len());
    assert!(slots * elements == keys.quants.len() && slots.is_multiple_of(LANES));
    assert!(elements.is_multiple_of(4));
    assert!(keys.scales.len() == slots * elements.div_ceil(SCALE_GROUP));
    assert!(slots <= stride && scores.len() >= (n - 1) * stride + slots);
    let mut first = 0;
    // SAFETY: `n` queries, `elements` rows of `slots` keys, the scales, and `n` rows of scores are in bounds.
    unsafe {
        macro_rules! run {
            ($n:literal, $p:literal) => {
                while n - first >= $n {
                    let mut slot = 0;
                    while slot + $p * L::WIDTH <= slots {
                        let at = (first, slot);
                        qk_block::<L, $n, $p>(queries, keys, at, scores, stride, &mut prefetcher);
                        slot += $p * L::WIDTH;
                    }
                    while slot < slots {
                        let at = (first, slot);
                        qk_block::<L, $n, 1>(queries, keys, at, scores, stride, &mut prefetcher);
                        slot += L::WIDTH;
                    }
                    first += $n;
                }
            };
        }
        if L::WIDTH == 16 {
            run!(8, 1);
            run!(4, 2);
        }
        run!(2, 2);
        run!(1, 2);
    }
    prefetcher.remaining_lines();
}

/// Scores of queries `first..first + N` by `P` vectors of slots from `slot` on.
#[inline(always)]
unsafe fn qk_block<L: QuantLanes, const N: usize, const P: usize>(
    queries: QuantizedQueries<'_>,
    keys: QuantizedKv<'_>,
    (first, slot): (usize, usize),
    scores: &mut [f32],
    stride: usize,
    prefetcher: &mut Prefetcher,
) {
    let elements = queries.elements;
    let slots = keys.quants.len() / elements;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[L::splat(0.0); P]; N];
        for group in 0..elements.div_ceil(SCALE_GROUP) {
            let at = group * SCALE_GROUP;
            let part = ScaleGroupView {
                queries: queries.quants.as_ptr().add(first * elements + at),
                planes: queries.planes.as_ptr().add((first * elements + at) * 2),
                elements,
                keys: keys.quants.as_ptr().add(at * slots + slot * 4),
                slots,
                quads: (elements - at).min(SCALE_GROUP) / 4,
            };
            let dots = L::dot_scale_group::<N, P>(part, prefetcher);
            for p in 0..P {
                let scale = keys
                    .scales
                    .as_ptr()
                    .add(group * slots + slot + p * L::WIDTH);
                let scale = L::load_f16(scale);
                for i in 0..N {
                    sums[i][p] = dots[i][p].mul_add(scale, sums[i][p]);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            let factor = L::splat(queries.scales[first + i]);
            let scores = scores.as_mut_ptr().add((first + i) * stride + slot);
            for (p, sum) in sums.into_iter().enumerate() {
                sum.mul(factor).store(scores.add(p * L::WIDTH));
            }
        }
    }
}

/// Vector path of `attention::int8::accumulate_pv`.
#[inline(always)]
pub(crate) unsafe fn accumulate_pv<L: QuantLanes>(
    sums: &mut [f32],
    elements: usize,
    weights: &[f32],
    stride: usize,
    values: QuantizedKv<'_>,
    (slot, count): (usize, usize),
    upcoming: &[u16],
) {
    let mut prefetcher = Prefetcher::new(upcoming);
    let part = (slot, count);
    let n = sums.len() / elements;
    let slots = values.quants.len() / elements;
    assert!(n * elements == sums.len() && slots * elements == values.quants.len());
    assert!(elements.is_multiple_of(LANES) && slots.is_multiple_of(LANES) && slot + count <= slots);
    assert!(values.scales.len() == slots * elements.div_ceil(SCALE_GROUP));
    assert!(weights.len() >= (n - 1) * stride + count);
    let mut first = 0;
    // SAFETY: `n` rows of sums and of weights and `slots` rows of values and of scales are in bounds.
    unsafe {
        macro_rules! run {
            ($n:literal, $p:literal) => {
                while n - first >= $n {
                    let sums = &mut sums[first * elements..(first + $n) * elements];
                    let weights = weights.as_ptr().add(first * stride);
                    let mut e = 0;
                    while e + $p * L::WIDTH <= elements {
                        pv_block::<L, $n, $p>(
                            sums,
                            e,
                            weights,
                            stride,
                            values,
                            part,
                            &mut prefetcher,
                        );
                        e += $p * L::WIDTH;
                    }
                    while e < elements {
                        pv_block::<L, $n, 1>(
                            sums,
                            e,
                            weights,
                            stride,
                            values,
                            part,
                            &mut prefetcher,
                        );
                        e += L::WIDTH;
                    }
                    first += $n;
                }
            };
        }
        if L::WIDTH == 16 {
            run!(8, 2);
            run!(4, 2);
            run!(2, 2);
            run!(1, 2);
        } else {
            run!(2, 4);
            run!(1, 4);
        }
    }
    prefetcher.remaining_lines();
}

/// PV sums of `N` queries by `P` vectors of elements from `e` on, which share a scale group.
#[inline(always)]
unsafe fn pv_block<L: QuantLanes, const N: usize, const P: usize>(
    sums: &mut [f32],
    e: usize,
    weights: *const f32,
    stride: usize,
    values: QuantizedKv<'_>,
    (slot, count): (usize, usize),
    prefetcher: &mut Prefetcher,
) {
    let elements = sums.len() / N;
    let slots = values.quants.len() / elements;
    let sums = sums.as_mut_ptr();
    // SAFETY: guaranteed by the caller; scales are read in whole groups of LANES, and a row of slots is padded
    // to whole groups.
    unsafe {
        let scales_of = values.scales.as_ptr().add(e / SCALE_GROUP * slots);
        let mut acc = [[L::splat(0.0); P]; N];
        for (i, acc) in acc.iter_mut().enumerate() {
            for (p, acc) in acc.iter_mut().enumerate() {
                *acc = L::load(sums.add(i * elements + e + p * L::WIDTH));
            }
        }
        let (mut at, end) = (slot, slot + count);
        while at < end {
            // Scales as f32 for the slots of one lane group.
            let lane_group = at / LANES * LANES;
            let mut scales = [0.0f32; LANES];
            for part in (0..LANES).step_by(L::WIDTH) {
                let half = L::load_f16(scales_of.add(lane_group + part));
                half.store(scales.as_mut_ptr().add(part));
            }
            for at in at..end.min(lane_group + LANES) {
                prefetcher.next_line();
                let scale = L::splat(scales[at - lane_group]);
                let quants = values.quants.as_ptr().add(at * elements + e);
                let mut value = [L::splat(0.0); P];
                for (p, value) in value.iter_mut().enumerate() {
                    *value = L::load_quants(quants.add(p * L::WIDTH)).mul(scale);
                }
                for (i, acc) in acc.iter_mut().enumerate() {
                    let weight = L::splat(*weights.add(i * stride + at - slot));
                    for (acc, value) in acc.iter_mut().zip(value) {
                        *acc = weight.mul_add(value, *acc);
                    }
                }
            }
            at = lane_group + LANES;
        }
        for (i, acc) in acc.into_iter().enumerate() {
            for (p, acc) in acc.into_iter().enumerate() {
                acc.store(sums.add(i * elements + e + p * L::WIDTH));
            }
        }
    }
}
