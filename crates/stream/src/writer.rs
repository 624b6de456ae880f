//! Writers of logs.

use crate::log::Log;
use crate::pool::Reservation;
use crate::reader::Tap;
use crate::sync::Arc;
use crate::{End, SEGMENT_ITEMS};
use std::task::Waker;

/// The log holds `capacity` items already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the log holds as many items as it was opened for")
    }
}

impl std::error::Error for Full {}

/// The writer of a log. The drop of an unfinished writer ends the log with [`End::Lost`].
pub struct Writer<T> {
    log: Arc<Log<T>>,
    reservation: Reservation<T>,
    /// Items appended: the log's length, which only the writer changes.
    len: u64,
}

impl<T: Copy + Send + Sync + 'static> Writer<T> {
    pub(crate) fn new(log: Arc<Log<T>>, reservation: Reservation<T>) -> Self {
        Self {
            log,
            reservation,
            len: 0,
        }
    }

    /// Appends one item, publishes the item and wakes parked readers, or the recorder of a gated log. Takes no lock, never waits, and allocates
    /// only where the pool has not allocated the reserved segment yet.
    #[expect(unsafe_code, reason = "the writer's half of the log's protocol")]
    pub fn append(&mut self, item: T) -> Result<(), Full> {
        if self.len == self.log.capacity as u64 {
            return Err(Full);
        }
        if self.len.is_multiple_of(SEGMENT_ITEMS as u64) {
            self.log.add_segment(self.len, self.reservation.take());
        }
        // SAFETY: a log has one writer, which counts the published items in `len`; the segment of index `len`
        // was added when `len` crossed into that segment.
        unsafe { self.log.push(self.len, item) };
        self.len += 1;
        Ok(())
    }

    /// Items appended so far, shown or not.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the log has no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Capacity of the log in items.
    pub fn capacity(&self) -> usize {
        self.log.capacity
    }

    /// Items that may still be appended.
    pub fn room(&self) -> usize {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        self.log.capacity.saturating_sub(len)
    }

    /// Whether the last reader was dropped, without a new one since. Taps do not count.
    pub fn is_abandoned(&self) -> bool {
        self.log.is_abandoned()
    }

    /// Items that are appended but not accepted by the reader that owns credit, minus the [grants](Tap::grant)
    /// beyond that; at least 0.
    pub fn unaccepted(&self) -> u64 {
        self.log.unaccepted(self.len)
    }

    /// Sets the waker that is called, on the other side's thread, each time there may be more credit
    /// ([`Writer::unaccepted`]) and when the last reader is dropped. Only the first call has an effect. The
    /// waker must be fast and must not wait.
    pub fn wake_on_credit(&self, waker: Waker) {
        self.log.wake_on_credit(waker);
    }

    /// A handle to the log that does not count as a reader.
    pub fn tap(&self) -> Tap<T> {
        Tap::new(&self.log)
    }

    /// Ends the log. Consumes the writer, so nothing can be appended afterwards.
    pub fn finish(self, end: End) {
        self.log.finish(end);
    }
}

impl<T> Drop for Writer<T> {
    /// No effect on a finished log.
    fn drop(&mut self) {
        self.log.finish(End::Lost);
    }
}
