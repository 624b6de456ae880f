//! The one who appends.

use crate::log::Log;
use crate::pool::Reservation;
use crate::sync::Arc;
use crate::tap::Tap;
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

/// The one who appends. Dropping it unfinished ends the log with [`End::Lost`].
pub struct Writer<T> {
    log: Arc<Log<T>>,
    reservation: Reservation<T>,
    /// Items appended: the log's length, which nobody else changes.
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

    /// Appends one item, publishes it and wakes parked readers. Takes no lock, never waits, and
    /// allocates only where the pool has not yet got the segment it promised.
    #[expect(unsafe_code, reason = "the writer's half of the log's protocol")]
    pub fn append(&mut self, item: T) -> Result<(), Full> {
        if self.len == self.log.capacity as u64 {
            return Err(Full);
        }
        if self.len.is_multiple_of(SEGMENT_ITEMS as u64) {
            self.log.add_segment(self.len, self.reservation.take());
        }
        // SAFETY: a log has one writer, which counts what it published in `len`; the segment of
        // index `len` was added when `len` crossed into it.
        unsafe { self.log.push(self.len, item) };
        self.len += 1;
        Ok(())
    }

    /// Items appended so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Items this log may hold.
    pub fn capacity(&self) -> usize {
        self.log.capacity
    }

    /// Items that may still be appended.
    pub fn room(&self) -> usize {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        self.log.capacity.saturating_sub(len)
    }

    /// Whether the last reader was dropped (and none attached since). Taps do not count.
    pub fn is_abandoned(&self) -> bool {
        self.log.is_abandoned()
    }

    /// Items appended but not yet accepted by the reader that governs credit, less what was
    /// [granted](Tap::grant) beyond that; not below 0.
    pub fn unaccepted(&self) -> u64 {
        self.log.unaccepted(self.len)
    }

    /// From now on this is woken, on the thread of whoever did it, each time there may be more credit
    /// ([`Writer::unaccepted`]) and when the last reader leaves. Only the first call counts. It must be
    /// quick and must not wait.
    pub fn wake_on_credit(&self, waker: Waker) {
        self.log.wake_on_credit(waker);
    }

    /// A look at the log that does not count as a reader.
    pub fn tap(&self) -> Tap<T> {
        Tap::new(&self.log)
    }

    /// Ends the log, exactly once: nothing can be appended after it, by type.
    pub fn finish(self, end: End) {
        self.log.finish(end);
    }
}

impl<T> Drop for Writer<T> {
    /// Does nothing to a log that was finished.
    fn drop(&mut self) {
        self.log.finish(End::Lost);
    }
}
