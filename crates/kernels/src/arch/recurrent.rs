//! The steps of a scan over [`Lanes`].
//!
//! # Safety
//! All functions: the processor has the level of `L`.

use super::lanes::Lanes;

/// Vectors of columns side by side: enough to hide the latency of a sum.
const SIDE_BY_SIDE: usize = 4;

/// The vector path of [`crate::recurrent::reference::delta_step`]. Each column is computed in the order of the rows, whatever
/// the width of a vector is.
#[inline(always)]
pub(crate) unsafe fn delta_step<L: Lanes>(
    state: &mut [f32],
    key: &[f32],
    query: &[f32],
    value: &[f32],
    gate: [f32; 2],
    out: &mut [f32],
) {
    // SAFETY: guaranteed by the caller.
    unsafe { step::<L, true>(state, key, query, value, gate, out) }
}

/// The vector path of [`crate::recurrent::reference::linear_step`].
#[inline(always)]
pub(crate) unsafe fn linear_step<L: Lanes>(
    state: &mut [f32],
    key: &[f32],
    query: &[f32],
    value: &[f32],
    gate: [f32; 2],
    out: &mut [f32],
) {
    // SAFETY: guaranteed by the caller.
    unsafe { step::<L, false>(state, key, query, value, gate, out) }
}

#[inline(always)]
unsafe fn step<L: Lanes, const CORRECTS: bool>(
    state: &mut [f32],
    key: &[f32],
    query: &[f32],
    value: &[f32],
    [decay, rate]: [f32; 2],
    out: &mut [f32],
) {
    let columns = value.len();
    assert!(columns == out.len() && state.len() == key.len() * columns && key.len() == query.len());
    assert!(columns.is_multiple_of(L::WIDTH), "whole vectors");
    let at = state.as_mut_ptr();
    let mut column = 0;
    // SAFETY: columns and rows stay within the slices, whose lengths were compared.
    unsafe {
        while column + SIDE_BY_SIDE * L::WIDTH <= columns {
            let (value, out) = (value.as_ptr().add(column), out.as_mut_ptr().add(column));
            let at = at.add(column);
            step_columns::<L, SIDE_BY_SIDE, CORRECTS>(
                at, columns, key, query, value, decay, rate, out,
            );
            column += SIDE_BY_SIDE * L::WIDTH;
        }
        while column < columns {
            let (value, out) = (value.as_ptr().add(column), out.as_mut_ptr().add(column));
            let at = at.add(column);
            step_columns::<L, 1, CORRECTS>(at, columns, key, query, value, decay, rate, out);
            column += L::WIDTH;
        }
    }
}

/// Columns of `N` vectors from `state` on, whose rows are `stride` apart; with the correction of the delta rule or without.
#[expect(
    clippy::too_many_arguments,
    reason = "scalars and pointers of one loop"
)]
#[inline(always)]
unsafe fn step_columns<L: Lanes, const N: usize, const CORRECTS: bool>(
    state: *mut f32,
    stride: usize,
    key: &[f32],
    query: &[f32],
    value: *const f32,
    decay: f32,
    rate: f32,
    out: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (decay, rate) = (L::splat(decay), L::splat(rate));
        let mut sums = [L::splat(0.0); N];
        if CORRECTS {
            for (row, &key) in key.iter().enumerate() {
                let (at, key) = (state.add(row * stride), L::splat(key));
                for (i, sum) in sums.iter_mut().enumerate() {
                    let entry = L::load(at.add(i * L::WIDTH)).mul(decay);
                    entry.store(at.add(i * L::WIDTH));
                    *sum = entry.mul_add(key, *sum);
                }
            }
        }
        let mut deltas = [L::splat(0.0); N];
        for (i, delta) in deltas.iter_mut().enumerate() {
            let value = L::load(value.add(i * L::WIDTH));
            let value = if CORRECTS { value.sub(sums[i]) } else { value };
            *delta = value.mul(rate);
            sums[i] = L::splat(0.0);
        }
        for (row, (&key, &query)) in key.iter().zip(query).enumerate() {
            let at = state.add(row * stride);
            let (key, query) = (L::splat(key), L::splat(query));
            for (i, sum) in sums.iter_mut().enumerate() {
                let entry = L::load(at.add(i * L::WIDTH));
                // With the correction, it has decayed above.
                let entry = if CORRECTS { entry } else { entry.mul(decay) };
                let entry = key.mul_add(deltas[i], entry);
                entry.store(at.add(i * L::WIDTH));
                *sum = entry.mul_add(query, *sum);
            }
        }
        for (i, sum) in sums.iter().enumerate() {
            sum.store(out.add(i * L::WIDTH));
        }
    }
}
