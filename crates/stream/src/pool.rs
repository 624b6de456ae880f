//! Where logs take their storage from.

use std::marker::PhantomData;

/// Items in one segment.
pub const SEGMENT_ITEMS: usize = 256;

/// The bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Segments that may be reserved at one time, over all logs.
    pub segments_max: usize,
}

/// Counts of a pool, for metrics and for tests that look for leaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Segments promised to open logs.
    pub reserved: usize,
    /// Segments that hold items of a log now.
    pub in_use: usize,
    /// Segments ever allocated from the system.
    pub allocated: usize,
    /// Times a segment was taken from the free list instead of being allocated.
    pub reused: u64,
}

/// The pool cannot promise as many segments as were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolExhausted {
    /// Segments asked for.
    pub wanted: usize,
    /// Segments that could still be promised.
    pub available: usize,
}

/// A bounded pool of log segments. Cloning gives another handle to the same pool.
pub struct SegmentPool<T> {
    _items: PhantomData<T>,
}

impl<T> Clone for SegmentPool<T> {
    fn clone(&self) -> Self {
        todo!()
    }
}

impl<T: Copy + Send + Sync + 'static> SegmentPool<T> {
    /// An empty pool with these bounds.
    pub fn new(limits: PoolLimits) -> Self {
        todo!("{limits:?}")
    }

    /// Counts as of now.
    pub fn stats(&self) -> PoolStats {
        todo!()
    }
}
