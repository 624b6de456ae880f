//! The log itself. (Stub: signatures only.)

use crate::{End, PoolExhausted, SegmentPool};
use std::marker::PhantomData;
use std::task::{Context, Poll};

/// Opens a log of at most `capacity` items. All segments it may need are reserved now, so that
/// an append within `capacity` cannot fail; they are given back when the log's last holder drops.
pub fn open<T: Copy + Send + Sync + 'static>(
    pool: &SegmentPool<T>,
    capacity: usize,
) -> Result<(Writer<T>, Reader<T>), PoolExhausted> {
    let _ = (pool, capacity);
    todo!()
}

/// The log holds `capacity` items already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The one who appends. Dropping it unfinished ends the log with [`End::Lost`].
pub struct Writer<T> {
    _t: PhantomData<T>,
}

impl<T: Copy + Send + Sync + 'static> Writer<T> {
    /// Appends one item, publishes it and wakes parked readers. Never waits, never allocates after warm-up.
    pub fn append(&mut self, _item: T) -> Result<(), Full> {
        todo!()
    }
    /// Items appended so far.
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// Items this log may hold.
    pub fn capacity(&self) -> usize {
        todo!()
    }
    /// Whether the last reader was dropped.
    pub fn is_abandoned(&self) -> bool {
        todo!()
    }
    /// Items appended but not yet accepted by the reader that governs credit.
    pub fn unaccepted(&self) -> u64 {
        todo!()
    }
    /// Ends the log, exactly once.
    pub fn finish(self, _end: End) {
        todo!()
    }
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This many items were copied into the buffer (never 0).
    Items(usize),
    /// Nothing new, and the log is still open.
    Empty,
    /// All items were read, and the log has ended.
    Ended(End),
}

/// One who follows the log. Dropping the last reader makes the log abandoned.
pub struct Reader<T> {
    _t: PhantomData<T>,
}

impl<T: Copy + Send + Sync + 'static> Reader<T> {
    /// Copies what is new into `buf` (as much as fits), without waiting.
    pub fn read(&mut self, _buf: &mut [T]) -> Read {
        todo!()
    }
    /// The same; `Pending` (instead of `Empty`) leaves the waker registered. Never `Ready(Read::Empty)`.
    pub fn poll_read(&mut self, _cx: &mut Context<'_>, _buf: &mut [T]) -> Poll<Read> {
        todo!()
    }
    /// The same; parks the calling thread until there is something. Never `Read::Empty`.
    pub fn read_blocking(&mut self, _buf: &mut [T]) -> Read {
        todo!()
    }
    /// Index of the next item this reader will see.
    pub fn cursor(&self) -> u64 {
        todo!()
    }
    /// Tells the writer that all items before `index` have left for the client: returns credit. Only grows.
    pub fn accept(&self, _index: u64) {
        todo!()
    }
    /// Another reader of the same log, from `index` (at most the length; else an error).
    pub fn attach(&self, _index: u64) -> Result<Reader<T>, AttachError> {
        todo!()
    }
    /// A look at the log that does not count as a reader.
    pub fn tap(&self) -> Tap<T> {
        todo!()
    }
}

/// The index asked for does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// Beyond the items written so far.
    Ahead {
        /// Items written so far.
        len: u64,
    },
}

/// A look at a log that keeps its items but does not keep it from being abandoned.
pub struct Tap<T> {
    _t: PhantomData<T>,
}

impl<T: Copy + Send + Sync + 'static> Tap<T> {
    /// Items appended so far.
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// The end, if there is one.
    pub fn end(&self) -> Option<End> {
        todo!()
    }
    /// A reader from `index`; it makes an abandoned but open log not abandoned again.
    pub fn attach(&self, _index: u64) -> Result<Reader<T>, AttachError> {
        todo!()
    }
}
