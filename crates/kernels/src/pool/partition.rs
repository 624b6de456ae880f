//! Partitions of work: ranges, rows of one or two buffers, tasks claimed one by one, and a slice that several workers write at the
//! same time, each worker its own range.

#![allow(unsafe_code)] // Parts of a slice are handed to workers; each block says why they are disjoint.

use super::Pool;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Elements below which [`Pool::rows`] and [`Pool::rows2`] run on the caller alone: about the cost of one pool
/// barrier (one or two microseconds).
const ROWS_ALONE_ELEMENTS: usize = 4096;

impl Pool {
    /// Cuts `0..n` into one contiguous range per worker, at multiples of `align`, and runs `work` on the ranges
    /// that are not empty. With `n <= align` the caller runs alone.
    pub fn ranges(&mut self, n: usize, align: usize, work: impl Fn(Range<usize>) + Sync) {
        if n <= align || self.threads() == 1 {
            if n > 0 {
                work(0..n);
            }
            return;
        }
        let threads = self.threads();
        self.run(|worker| {
            let range = share(n, align, threads, worker);
            if !range.is_empty() {
                work(range);
            }
        });
    }

    /// Lets the workers claim contiguous ranges of `0..n`, long ranges first and shorter ranges towards the end
    /// (guided self-scheduling, Polychronopoulos and Kuck 1987), so that a core with other load delays nothing.
    /// Each range but the last is a multiple of `grain`. The assignment of ranges to workers varies.
    pub fn guided(&mut self, n: usize, grain: usize, work: impl Fn(Range<usize>) + Sync) {
        let (grain, threads) = (grain.max(1), self.threads());
        if n <= grain || threads == 1 {
            if n > 0 {
                work(0..n);
            }
            return;
        }
        let next = AtomicUsize::new(0);
        self.run(|_| {
            loop {
                let end = |start: usize| {
                    let some = (n - start) / (2 * threads) / grain * grain;
                    (start + some.max(grain)).min(n)
                };
                let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |start| {
                    (start < n).then(|| end(start))
                });
                match taken {
                    Ok(start) => work(start..end(start)),
                    Err(_) => return,
                }
            }
        });
    }

    /// Runs `work(row, slice)` for each row of `out`, shape `(_, width)`; contiguous rows per worker.
    pub fn rows<T: Send>(
        &mut self,
        out: &mut [T],
        width: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let rows = rows_of(out, width);
        if out.len() < ROWS_ALONE_ELEMENTS {
            out.chunks_exact_mut(width.max(1))
                .enumerate()
                .for_each(|(row, slice)| work(row, slice));
            return;
        }
        let out = DisjointSlice::new(out);
        self.ranges(rows, 1, |range| {
            // SAFETY: the workers' ranges of rows are disjoint.
            let part = unsafe { out.part(range.start * width..range.end * width) };
            for (row, slice) in range.zip(part.chunks_exact_mut(width)) {
                work(row, slice);
            }
        });
    }

    /// Runs `work(row, slice of a, slice of b)` for each row of two buffers, like [`Pool::rows`].
    ///
    /// # Panics
    /// If the buffers have different numbers of rows.
    pub fn rows2(
        &mut self,
        (a, a_width): (&mut [f32], usize),
        (b, b_width): (&mut [f32], usize),
        work: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
    ) {
        let rows = rows_of(a, a_width);
        assert_eq!(rows, rows_of(b, b_width), "two buffers, one number of rows");
        let alone = a.len() + b.len() < ROWS_ALONE_ELEMENTS;
        let (a, b) = (DisjointSlice::new(a), DisjointSlice::new(b));
        let share = |range: Range<usize>| {
            for row in range {
                // SAFETY: each row is visited once, by one worker.
                let a = unsafe { a.part(row * a_width..(row + 1) * a_width) };
                // SAFETY: each row is visited once, by one worker.
                let b = unsafe { b.part(row * b_width..(row + 1) * b_width) };
                work(row, a, b);
            }
        };
        if alone {
            share(0..rows);
        } else {
            self.ranges(rows, 1, share);
        }
    }

    /// Gives each worker its own element of `states` and lets the workers claim tasks `0..n` one by one. The
    /// assignment varies, so a task's result must not depend on its worker.
    ///
    /// # Panics
    /// If there are fewer states than workers.
    pub fn tasks<S: Send>(
        &mut self,
        states: &mut [S],
        n: usize,
        work: impl Fn(&mut S, usize) + Sync,
    ) {
        self.tasks_if(true, states, n, work);
    }

    /// [`Pool::tasks`], or all tasks on the caller if the barrier costs more than it gains (`worth` is false).
    pub(crate) fn tasks_if<S: Send>(
        &mut self,
        worth: bool,
        states: &mut [S],
        n: usize,
        work: impl Fn(&mut S, usize) + Sync,
    ) {
        assert!(states.len() >= self.threads(), "one state per worker");
        if n <= 1 || self.threads() == 1 || !worth {
            (0..n).for_each(|task| work(&mut states[0], task));
            return;
        }
        let states = DisjointSlice::new(states);
        let next = AtomicUsize::new(0);
        self.run(|worker| {
            // SAFETY: each worker takes the element with its own index.
            let state = unsafe { &mut states.part(worker..worker + 1)[0] };
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= n {
                    return;
                }
                work(state, task);
            }
        });
    }
}

/// The range of worker `worker` in `0..n`, cut at multiples of `align`.
fn share(n: usize, align: usize, workers: usize, worker: usize) -> Range<usize> {
    let align = align.max(1);
    let units = n.div_ceil(align);
    let cut = |worker: usize| (units * worker / workers * align).min(n);
    cut(worker)..cut(worker + 1)
}

fn rows_of<T>(buffer: &[T], width: usize) -> usize {
    if buffer.is_empty() {
        return 0;
    }
    assert!(
        width > 0 && buffer.len().is_multiple_of(width),
        "a buffer of {} elements has no whole rows of {width}",
        buffer.len()
    );
    buffer.len() / width
}

/// A borrowed mutable slice whose ranges are handed to different workers.
pub(crate) struct DisjointSlice<'a, T> {
    start: *mut T,
    len: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: sharing only hands out ranges as `&mut [T]`, and users guarantee that ranges do not overlap.
unsafe impl<T: Send> Sync for DisjointSlice<'_, T> {}

impl<'a, T> DisjointSlice<'a, T> {
    /// Borrows `slice`.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            _borrow: PhantomData,
        }
    }

    /// A mutable range of the slice.
    ///
    /// # Safety
    /// No overlapping range is in use at the same time.
    ///
    /// # Panics
    /// If `range` is not within the slice.
    #[expect(clippy::mut_from_ref, reason = "the caller promises disjoint parts")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: within the borrowed slice by the check, and exclusive by the caller's guarantee.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
