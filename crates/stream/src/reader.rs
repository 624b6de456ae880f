//! Handles to a log: readers, and taps.

use crate::log::Log;
use crate::sync::{Arc, thread};
use crate::wait::{self, Seat};
use crate::{End, SEGMENT_ITEMS};
use std::task::{Context, Poll};

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Number of items copied into the buffer (never 0).
    Items(usize),
    /// No new items, and the log is open.
    Empty,
    /// All items were read, and the log has ended.
    Ended(End),
}

/// A reader of a log. The drop of the last reader makes the log abandoned.
pub struct Reader<T> {
    seat: Seat, // before `log`: the list of seats is the log's
    log: Arc<Log<T>>,
    cursor: u64, // 0 ..= visible length
}

impl<T: Copy + Send + Sync + 'static> Reader<T> {
    pub(crate) fn start(log: &Arc<Log<T>>, cursor: u64) -> Self {
        log.reader_came();
        Self {
            seat: log.visible.waiters.join(),
            log: Arc::clone(log),
            cursor,
        }
    }

    /// Copies new items into `buf`, as many as fit, without waiting.
    ///
    /// # Panics
    /// If `buf` is empty.
    pub fn read(&mut self, buf: &mut [T]) -> Read {
        assert!(!buf.is_empty(), "a read needs room for one item");
        let mut count = self.log.copy_visible(self.cursor, buf);
        if count == 0 {
            let Some(end) = self.log.visible_end() else {
                return Read::Empty;
            };
            count = self.log.copy_visible(self.cursor, buf); // what came between the two looks
            if count == 0 {
                return Read::Ended(end);
            }
        }
        self.cursor += count as u64;
        Read::Items(count)
    }

    /// As [`Reader::read`], but `Pending` instead of `Empty`, with the waker registered. Never
    /// `Ready(Read::Empty)`.
    ///
    /// # Panics
    /// If `buf` is empty.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [T]) -> Poll<Read> {
        let found = self.read(buf);
        if found != Read::Empty {
            return Poll::Ready(found);
        }
        self.log.visible.waiters.register(&self.seat, cx.waker());
        match self.read(buf) {
            Read::Empty => Poll::Pending,
            found => {
                self.seat.unregister();
                Poll::Ready(found)
            }
        }
    }

    /// As [`Reader::read`], but parks the calling thread until there are new items or the end. Never
    /// `Read::Empty`. Allocates a waker if the thread has to wait.
    ///
    /// # Panics
    /// If `buf` is empty.
    pub fn read_blocking(&mut self, buf: &mut [T]) -> Read {
        let found = self.read(buf);
        if found != Read::Empty {
            return found;
        }
        let waker = wait::this_thread();
        let mut cx = Context::from_waker(&waker);
        loop {
            match self.poll_read(&mut cx, buf) {
                Poll::Ready(found) => return found,
                Poll::Pending => thread::park(), // may return for no reason: look again
            }
        }
    }

    /// Index of the reader's next item.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Accepts all items before `index` on behalf of the client, which returns credit to the writer. Only
    /// grows; an index beyond the visible items counts as their number.
    pub fn accept(&self, index: u64) {
        self.log.accept(index);
    }

    /// Grants extra credit, as [`Tap::grant`].
    pub fn grant(&self, extra: u64) {
        self.log.grant(extra);
    }

    /// Opens another reader of the log at `index`, which is at most the visible length (else an error).
    pub fn attach(&self, index: u64) -> Result<Reader<T>, AttachError> {
        self.log.check_index(index)?;
        Ok(Self::start(&self.log, index))
    }

    /// A handle to the log that does not count as a reader.
    pub fn tap(&self) -> Tap<T> {
        Tap::new(&self.log)
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.log.reader_left();
    }
}

/// The requested index does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// Beyond the visible items.
    Ahead {
        /// Visible items.
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

/// A handle that keeps a log's items, but does not keep the log from being abandoned. A tap of a gated log sees, as a
/// reader does, what the [gate](crate::Gate) has shown.
pub struct Tap<T> {
    log: Arc<Log<T>>,
}

impl<T: Copy + Send + Sync + 'static> Tap<T> {
    pub(crate) fn new(log: &Arc<Log<T>>) -> Self {
        Self {
            log: Arc::clone(log),
        }
    }

    /// Visible items: those appended so far, or of a gated log those shown so far.
    pub fn len(&self) -> u64 {
        self.log.visible_len()
    }

    /// Whether the log has no visible items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The end, if the log has ended and the end is shown.
    pub fn end(&self) -> Option<End> {
        self.log.visible_end()
    }

    /// Current number of readers; 0 means abandoned.
    pub fn readers(&self) -> usize {
        self.log.readers()
    }

    /// Whether the last reader was dropped, without a new one since. Taps do not count.
    pub fn is_abandoned(&self) -> bool {
        self.log.is_abandoned()
    }

    /// Items before this index were accepted.
    pub fn accepted(&self) -> u64 {
        self.log.accepted()
    }

    /// Accepts items, as [`Reader::accept`], for a client that acknowledges: only grows; an index beyond the
    /// visible items counts as their number.
    pub fn accept(&self, index: u64) {
        self.log.accept(index);
    }

    /// Grants extra credit: [`Writer::unaccepted`] counts `extra` items fewer from now on. Grants add up (to at
    /// most `u64::MAX`) and are never taken back, so extra credit is granted once per log, not each time a
    /// reader leaves; [`Tap::granted`] shows whether that has happened.
    ///
    /// [`Writer::unaccepted`]: crate::Writer::unaccepted
    pub fn grant(&self, extra: u64) {
        self.log.grant(extra);
    }

    /// Sum of all grants.
    pub fn granted(&self) -> u64 {
        self.log.granted()
    }

    /// Current value of [`Writer::unaccepted`](crate::Writer::unaccepted), counted over the visible items.
    pub fn unaccepted(&self) -> u64 {
        self.log.unaccepted(self.len())
    }

    /// Capacity of the log in items.
    pub fn capacity(&self) -> usize {
        self.log.capacity
    }

    /// Bytes of the segments that hold this log's visible items: whole segments.
    pub fn bytes(&self) -> usize {
        // Visible items were stored in memory, so their size fits.
        (self.len() as usize).div_ceil(SEGMENT_ITEMS) * SEGMENT_ITEMS * size_of::<T>()
    }

    /// Copies items from index `from` on into `buf`, as many as there are and fit. Returns their number.
    pub fn copy_items(&self, from: u64, buf: &mut [T]) -> usize {
        self.log.copy_visible(from, buf)
    }

    /// Opens a reader at `index`; an abandoned open log becomes watched again.
    pub fn attach(&self, index: u64) -> Result<Reader<T>, AttachError> {
        self.log.check_index(index)?;
        Ok(Reader::start(&self.log, index))
    }
}

impl<T> Clone for Tap<T> {
    fn clone(&self) -> Self {
        Self {
            log: Arc::clone(&self.log),
        }
    }
}
