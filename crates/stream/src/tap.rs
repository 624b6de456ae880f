//! Handles to a log that are not readers.

use crate::attach_error::AttachError;
use crate::log::Log;
use crate::reader::Reader;
use crate::sync::Arc;
use crate::{End, SEGMENT_ITEMS};

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
