//! The steps of a scan over [`Lanes`]. Each column is computed in the order of the rows, whatever the width of a vector is.
//!
//! # Safety
//! All functions: the processor has the level of `L`.

use super::lanes::Lanes;

/// Vectors of columns side by side in the delta rule: with two sums for each, enough to hide the latency of an addition.
const DELTA_VECTORS: usize = 2;

/// As [`DELTA_VECTORS`], with one sum for each.
const LINEAR_VECTORS: usize = 4;

/// The vector path of [`crate::recurrent::reference::delta_start`].
#[inline(always)]
pub(crate) unsafe fn delta_start<L: Lanes>(
    state: &mut [f32],
    key: &[f32],
    decay: f32,
    known: &mut [f32],
) {
    let columns = known.len();
    assert_eq!(state.len(), key.len() * columns);
    let (state, known) = (state.as_mut_ptr(), known.as_mut_ptr());
    // SAFETY: guaranteed by the caller; columns and rows stay within the slices, whose lengths were compared.
    unsafe {
        let decay = L::splat(decay);
        for (column, is_wide) in blocks::<L, DELTA_VECTORS>(columns) {
            let (at, known) = (state.add(column), known.add(column));
            if is_wide {
                start::<L, DELTA_VECTORS>(at, columns, key, decay, known);
            } else {
                start::<L, 1>(at, columns, key, decay, known);
            }
        }
    }
}

/// The vector path of [`crate::recurrent::reference::delta_step`]: one pass over the state, also for what the next token needs.
#[inline(always)]
pub(crate) unsafe fn delta_step<L: Lanes>(
    state: &mut [f32],
    [key, query, value]: [&[f32]; 3],
    rate: f32,
    next: Option<(&[f32], f32)>,
    known: &mut [f32],
    out: &mut [f32],
) {
    let columns = value.len();
    assert!(columns == out.len() && state.len() == key.len() * columns && key.len() == query.len());
    assert!(columns == known.len() && next.is_none_or(|(next, _)| next.len() == key.len()));
    let (state, known) = (state.as_mut_ptr(), known.as_mut_ptr());
    // SAFETY: guaranteed by the caller; columns and rows stay within the slices, whose lengths were compared.
    unsafe {
        let rate = L::splat(rate);
        for (column, is_wide) in blocks::<L, DELTA_VECTORS>(columns) {
            let (at, known) = (state.add(column), known.add(column));
            let (value, out) = (value.as_ptr().add(column), out.as_mut_ptr().add(column));
            if is_wide {
                correct::<L, DELTA_VECTORS>(value, rate, known);
                update::<L, DELTA_VECTORS>(at, columns, [key, query], next, known, out);
            } else {
                correct::<L, 1>(value, rate, known);
                update::<L, 1>(at, columns, [key, query], next, known, out);
            }
        }
    }
}

/// The vector path of [`crate::recurrent::reference::linear_step`].
#[inline(always)]
pub(crate) unsafe fn linear_step<L: Lanes>(
    state: &mut [f32],
    [key, query, value]: [&[f32]; 3],
    [decay, rate]: [f32; 2],
    out: &mut [f32],
) {
    let columns = value.len();
    assert!(columns == out.len() && state.len() == key.len() * columns && key.len() == query.len());
    let state = state.as_mut_ptr();
    // SAFETY: guaranteed by the caller; columns and rows stay within the slices, whose lengths were compared.
    unsafe {
        let gate = [L::splat(decay), L::splat(rate)];
        for (column, is_wide) in blocks::<L, LINEAR_VECTORS>(columns) {
            let at = state.add(column);
            let (value, out) = (value.as_ptr().add(column), out.as_mut_ptr().add(column));
            if is_wide {
                linear::<L, LINEAR_VECTORS>(at, columns, [key, query], value, gate, out);
            } else {
                linear::<L, 1>(at, columns, [key, query], value, gate, out);
            }
        }
    }
}

/// The blocks of columns: where each begins, and whether it has `N` vectors or one.
#[inline(always)]
fn blocks<L: Lanes, const N: usize>(columns: usize) -> impl Iterator<Item = (usize, bool)> {
    assert!(columns.is_multiple_of(L::WIDTH), "whole vectors");
    let width = N * L::WIDTH;
    let wide = columns / width;
    let narrow = (wide * width..columns).step_by(L::WIDTH);
    let wide = (0..wide).map(move |block| (block * width, true));
    wide.chain(narrow.map(|column| (column, false)))
}

/// Columns of `N` vectors from `state` on, whose rows are `stride` apart.
#[inline(always)]
unsafe fn start<L: Lanes, const N: usize>(
    state: *mut f32,
    stride: usize,
    key: &[f32],
    decay: L,
    known: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [L::splat(0.0); N];
        for (row, &key) in key.iter().enumerate() {
            let (at, key) = (state.add(row * stride), L::splat(key));
            for (i, sum) in sums.iter_mut().enumerate() {
                let entry = L::load(at.add(i * L::WIDTH)).mul(decay);
                entry.store(at.add(i * L::WIDTH));
                *sum = entry.mul_add(key, *sum);
            }
        }
        store(&sums, known);
    }
}

/// Replaces what the state says of a key by the correction.
#[inline(always)]
unsafe fn correct<L: Lanes, const N: usize>(value: *const f32, rate: L, known: *mut f32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        for i in 0..N {
            let at = known.add(i * L::WIDTH);
            let value = L::load(value.add(i * L::WIDTH));
            value.sub(L::load(at)).mul(rate).store(at);
        }
    }
}

/// Adds the corrections in `known`, sums for the query, and, where a token follows, does for it what [`start`] does.
#[inline(always)]
unsafe fn update<L: Lanes, const N: usize>(
    state: *mut f32,
    stride: usize,
    [key, query]: [&[f32]; 2],
    next: Option<(&[f32], f32)>,
    known: *mut f32,
    out: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (mut deltas, zeros) = ([L::splat(0.0); N], [L::splat(0.0); N]);
        for (i, delta) in deltas.iter_mut().enumerate() {
            *delta = L::load(known.add(i * L::WIDTH));
        }
        let (mut sums, mut next_sums) = (zeros, zeros);
        let Some((next_key, decay)) = next else {
            for (row, (&key, &query)) in key.iter().zip(query).enumerate() {
                let at = state.add(row * stride);
                let (key, query) = (L::splat(key), L::splat(query));
                for (i, sum) in sums.iter_mut().enumerate() {
                    let entry = key.mul_add(deltas[i], L::load(at.add(i * L::WIDTH)));
                    entry.store(at.add(i * L::WIDTH));
                    *sum = entry.mul_add(query, *sum);
                }
            }
            return store(&sums, out);
        };
        let decay = L::splat(decay);
        for (row, ((&key, &query), &next_key)) in key.iter().zip(query).zip(next_key).enumerate() {
            let at = state.add(row * stride);
            let (key, query, next_key) = (L::splat(key), L::splat(query), L::splat(next_key));
            for (i, (sum, next_sum)) in sums.iter_mut().zip(&mut next_sums).enumerate() {
                let entry = key.mul_add(deltas[i], L::load(at.add(i * L::WIDTH)));
                *sum = entry.mul_add(query, *sum);
                let entry = entry.mul(decay);
                entry.store(at.add(i * L::WIDTH));
                *next_sum = entry.mul_add(next_key, *next_sum);
            }
        }
        store(&sums, out);
        store(&next_sums, known);
    }
}

/// Columns of `N` vectors from `state` on, whose rows are `stride` apart.
#[inline(always)]
unsafe fn linear<L: Lanes, const N: usize>(
    state: *mut f32,
    stride: usize,
    [key, query]: [&[f32]; 2],
    value: *const f32,
    [decay, rate]: [L; 2],
    out: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (mut values, mut sums) = ([L::splat(0.0); N], [L::splat(0.0); N]);
        for (i, to) in values.iter_mut().enumerate() {
            *to = L::load(value.add(i * L::WIDTH)).mul(rate);
        }
        for (row, (&key, &query)) in key.iter().zip(query).enumerate() {
            let at = state.add(row * stride);
            let (key, query) = (L::splat(key), L::splat(query));
            for (i, sum) in sums.iter_mut().enumerate() {
                let entry = L::load(at.add(i * L::WIDTH)).mul(decay);
                let entry = key.mul_add(values[i], entry);
                entry.store(at.add(i * L::WIDTH));
                *sum = entry.mul_add(query, *sum);
            }
        }
        store(&sums, out);
    }
}

#[inline(always)]
unsafe fn store<L: Lanes, const N: usize>(vectors: &[L; N], to: *mut f32) {
    for (i, vector) in vectors.iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { vector.store(to.add(i * L::WIDTH)) };
    }
}
