//! A look at a log that is not a reader.

use crate::log::{AttachError, Log};
use crate::reader::Reader;
use crate::sync::Arc;
use crate::{End, SEGMENT_ITEMS};

/// A look at a log that keeps its items but does not keep it from being abandoned.
pub struct Tap<T> {
    log: Arc<Log<T>>,
}

impl<T: Copy + Send + Sync + 'static> Tap<T> {
    pub(crate) fn new(log: &Arc<Log<T>>) -> Self {
        Self {
            log: Arc::clone(log),
        }
    }

    /// Items appended so far.
    pub fn len(&self) -> u64 {
        self.log.len()
    }

    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The end, if there is one.
    pub fn end(&self) -> Option<End> {
        self.log.end()
    }

    /// Readers the log has now. 0 = abandoned.
    pub fn readers(&self) -> usize {
        self.log.readers()
    }

    /// Whether the last reader was dropped (and none attached since). Taps do not count.
    pub fn is_abandoned(&self) -> bool {
        self.log.is_abandoned()
    }

    /// Items before this index have left for the client, as far as the writer was told.
    pub fn accepted(&self) -> u64 {
        self.log.accepted()
    }

    /// As [`Reader::accept`], for a client that says by itself what it has: only grows; what is
    /// beyond the items written counts as their number.
    pub fn accept(&self, index: u64) {
        self.log.accept(index);
    }

    /// Extra credit: from now on [`Writer::unaccepted`] counts `extra` items fewer. Grants add up
    /// (at most to `u64::MAX`) and are never taken back, so that a log is to be granted its extra
    /// once, not each time its reader leaves; [`Tap::granted`] tells whether it was.
    ///
    /// [`Writer::unaccepted`]: crate::Writer::unaccepted
    pub fn grant(&self, extra: u64) {
        self.log.grant(extra);
    }

    /// All that was granted so far.
    pub fn granted(&self) -> u64 {
        self.log.granted()
    }

    /// What [`Writer::unaccepted`](crate::Writer::unaccepted) answers, as of now.
    pub fn unaccepted(&self) -> u64 {
        self.log.unaccepted(self.len())
    }

    /// Items this log may hold.
    pub fn capacity(&self) -> usize {
        self.log.capacity
    }

    /// Bytes of the pool's segments that hold this log's items: whole segments.
    pub fn bytes(&self) -> usize {
        // what was written was stored in memory, so its size fits
        (self.len() as usize).div_ceil(SEGMENT_ITEMS) * SEGMENT_ITEMS * size_of::<T>()
    }

    /// A reader from `index`; it makes an abandoned but open log not abandoned again.
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
