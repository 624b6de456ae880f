//! What the holders of one log share, and how they agree without a lock.
//!
//! # States
//!
//! *Open* until `end` is set, once; then *ended* for ever. *Watched* while `readers > 0`, otherwise
//! *abandoned*; an open log may become watched again, through a tap.
//!
//! # The protocol
//!
//! - The **writer** (one, `&mut`) stores an item in its place, then publishes it by storing `len`
//!   (Release), then wakes. To end, it sets `end` (Release), then wakes. After `end`, `len` never
//!   changes. Crossing into a new segment it takes one from the pool and notes its number in
//!   `table`, before the `len` that first needs it.
//! - A **reader** loads `len` (Acquire) and touches only places, and table entries, below it. If
//!   there is nothing new it looks for `end` (Acquire).
//! - A reader that will sleep follows the protocol of [`WaitList`].
//! - Each holder has a share in the log; who drops the last one gives the segments back.
//! - `accepted` and `granted` only grow, so credit the writer has seen is never taken back. The
//!   writer may see either late, which makes it wait a little longer than it had to, never run
//!   further than it may.
//! - Who stores news for the writer (more credit, the last reader's leave) wakes it afterwards, always:
//!   no flag says whether it sleeps, so none can be missed. A writer that looks first and sleeps then,
//!   with a wake in between making the sleep return at once (as `park` does), sleeps through nothing.
//!
//! # The bad interleaving
//!
//! A reader loads `len` = 3 and has read 3 items; the writer appends a fourth and ends; the reader
//! sees `end` and says so: the fourth is lost. It cannot happen, because a reader that saw `end`
//! loads `len` again, and what it acquired with `end` includes the last length.

use crate::pool::{PoolExhausted, SegmentPool};
use crate::reader::Reader;
use crate::sync::{Arc, AtomicU32, AtomicU64, AtomicUsize, OnceLock, Ordering};
use crate::wait::WaitList;
use crate::writer::Writer;
use crate::{End, SEGMENT_ITEMS};
use std::task::Waker;

/// Opens a log of at most `capacity` items. All segments it may need are reserved now, so that
/// an append within `capacity` cannot fail. What the writer did not take is given back when it
/// ends the log, the rest when the log's last holder (writer, reader or tap) drops.
///
/// The log itself is a table of 4 bytes per segment and about 200 bytes.
pub fn open<T: Copy + Send + Sync + 'static>(
    pool: &SegmentPool<T>,
    capacity: usize,
) -> Result<(Writer<T>, Reader<T>), PoolExhausted> {
    let segments = capacity.div_ceil(SEGMENT_ITEMS);
    let reservation = pool.reserve(segments)?;
    let log = Arc::new(Log {
        pool: pool.clone(),
        capacity,
        table: (0..segments).map(|_| AtomicU32::new(NOT_TAKEN)).collect(),
        len: AtomicU64::new(0),
        end: OnceLock::new(),
        readers: AtomicUsize::new(0),
        accepted: AtomicU64::new(0),
        granted: AtomicU64::new(0),
        writer: std::sync::OnceLock::new(),
        waiters: WaitList::new(),
    });
    let reader = Reader::start(&log, 0);
    Ok((Writer::new(log, reservation), reader))
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

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Ahead { len } = self;
        write!(f, "index is beyond the {len} items written so far")
    }
}

impl std::error::Error for AttachError {}

/// A table entry whose segment was not needed yet. No segment has this number.
const NOT_TAKEN: u32 = u32::MAX;

/// What writer, readers and taps of one log share.
pub(crate) struct Log<T> {
    pool: SegmentPool<T>,
    pub(crate) capacity: usize,
    /// Numbers of the segments taken, in order; then `NOT_TAKEN`.
    table: Box<[AtomicU32]>, // (segments promised)
    /// Items published.
    len: AtomicU64, // 0 ..= capacity
    end: OnceLock<End>,
    readers: AtomicUsize,
    /// Items before this index have left for the client.
    accepted: AtomicU64, // 0 ..= len
    /// Items the writer may be ahead beyond what was accepted, at no charge.
    granted: AtomicU64,
    /// Wakes the writer, if it wants to be.
    writer: std::sync::OnceLock<Waker>,
    pub(crate) waiters: WaitList,
}

/// For the writer.
impl<T: Copy> Log<T> {
    /// Notes the segment that will hold the items from `index` on.
    pub(crate) fn add_segment(&self, index: u64, number: u32) {
        self.table[segment_of(index)].store(number, Ordering::Relaxed);
    }

    /// Stores the item at `index`, publishes it and wakes the readers.
    ///
    /// # Safety
    /// The caller is the log's one writer, `index` is the number of items published, and its
    /// segment was added.
    #[inline]
    #[expect(unsafe_code, reason = "the place is not published yet")]
    pub(crate) unsafe fn push(&self, index: u64, item: T) {
        let segment = self
            .pool
            .segment(self.table[segment_of(index)].load(Ordering::Relaxed));
        // SAFETY: by this function's contract the caller is the writer, and readers stay below
        // the published length, which is `index`.
        unsafe { segment.write(place_of(index), item) };
        self.len.store(index + 1, Ordering::Release);
        self.waiters.wake_all();
    }
}

/// For everybody.
impl<T> Log<T> {
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end.get().copied()
    }

    /// Ends the log and wakes the readers, if it has not ended yet.
    pub(crate) fn finish(&self, end: End) {
        if self.end.set(end).is_ok() {
            self.waiters.wake_all();
        }
    }

    pub(crate) fn accept(&self, index: u64) {
        let index = index.min(self.len());
        if self.accepted.fetch_max(index, Ordering::AcqRel) < index {
            self.wake_writer();
        }
    }

    /// Only the first call counts.
    pub(crate) fn wake_on_credit(&self, waker: Waker) {
        let _ = self.writer.set(waker);
    }

    /// A writer that has ended wants to hear no more.
    fn wake_writer(&self) {
        if let Some(writer) = self.writer.get()
            && self.end().is_none()
        {
            writer.wake_by_ref();
        }
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    pub(crate) fn grant(&self, extra: u64) {
        let mut granted = self.granted.load(Ordering::Relaxed);
        while let Err(now) = self.granted.compare_exchange_weak(
            granted,
            granted.saturating_add(extra),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            granted = now;
        }
        self.wake_writer();
    }

    pub(crate) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Acquire)
    }

    /// Of `len` items, those neither accepted nor covered by a grant.
    pub(crate) fn unaccepted(&self, len: u64) -> u64 {
        len.saturating_sub(self.accepted())
            .saturating_sub(self.granted())
    }

    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::Acquire)
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.readers() == 0
    }

    pub(crate) fn reader_came(&self) {
        self.readers.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn reader_left(&self) {
        if self.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_writer();
        }
    }

    /// Fails when `index` is beyond what was published.
    pub(crate) fn check_index(&self, index: u64) -> Result<(), AttachError> {
        let len = self.len();
        if index > len {
            Err(AttachError::Ahead { len })
        } else {
            Ok(())
        }
    }
}

/// For readers.
impl<T: Copy> Log<T> {
    /// Copies the items from index `from` on, as many as there are and fit.
    pub(crate) fn copy_from(&self, from: u64, buf: &mut [T]) -> usize {
        let new = usize::try_from(self.len().saturating_sub(from)).unwrap_or(usize::MAX);
        let wanted = buf.len().min(new);
        let mut copied = 0;
        while copied < wanted {
            copied += self.copy_within_segment(from + copied as u64, &mut buf[copied..wanted]);
        }
        copied
    }

    /// Copies as many of the published items from `index` on as lie in one segment. `buf` reaches
    /// no further than the published length.
    #[expect(unsafe_code, reason = "reads below the published length")]
    fn copy_within_segment(&self, index: u64, buf: &mut [T]) -> usize {
        let place = place_of(index);
        let count = buf.len().min(SEGMENT_ITEMS - place);
        let segment = self
            .pool
            .segment(self.table[segment_of(index)].load(Ordering::Relaxed));
        // SAFETY: `copy_from` acquired a length that covers all of `buf`.
        unsafe { segment.copy_to(place, &mut buf[..count]) };
        count
    }
}

impl<T> Drop for Log<T> {
    fn drop(&mut self) {
        for entry in &self.table {
            match entry.load(Ordering::Relaxed) {
                NOT_TAKEN => break,
                number => self.pool.give_back(number),
            }
        }
    }
}

// Indices of items in memory fit `usize`: they are below `capacity`.

fn segment_of(index: u64) -> usize {
    index as usize / SEGMENT_ITEMS
}

fn place_of(index: u64) -> usize {
    index as usize % SEGMENT_ITEMS
}
