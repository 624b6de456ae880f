//! Readers of a stream that are present, and whether one of them has read the end.

use super::stream_record::StreamRecord;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// The readers of one stream.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    present: AtomicUsize,
    has_read_end: AtomicBool,
    /// For the one task that waits until the end was read, or nobody is present.
    changes: Notify,
}

impl Attendance {
    pub(crate) fn enter(&self) {
        self.present.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        if self.present.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.changes.notify_one();
        }
    }

    /// A reader has the end. To be called while that reader is present.
    pub(crate) fn note_end_read(&self) {
        self.has_read_end.store(true, Ordering::SeqCst);
        self.changes.notify_one();
    }

    /// Waits until a reader has the end of an ended stream (true), or nobody is present (false).
    pub(crate) async fn is_end_read(&self) -> bool {
        loop {
            // In this order: the last reader reads the end before it leaves.
            let is_empty = self.present.load(Ordering::SeqCst) == 0;
            if self.has_read_end.load(Ordering::SeqCst) {
                return true;
            }
            if is_empty {
                return false;
            }
            self.changes.notified().await;
        }
    }
}

/// The end of a stream on the way to a reader, who is present until the drop.
pub struct EndReceipt(Arc<StreamRecord>);

impl EndReceipt {
    pub(crate) fn new(record: &Arc<StreamRecord>) -> Self {
        record.attendance().enter();
        Self(Arc::clone(record))
    }

    /// The reader has the end.
    pub fn confirm(self) {
        self.0.attendance().note_end_read();
    }
}

impl Drop for EndReceipt {
    fn drop(&mut self) {
        self.0.attendance().leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn end_is_read_by_a_reader_who_was_present() {
        let readers = Attendance::default();
        assert_eq!(readers.is_end_read().now_or_never(), Some(false), "nobody");
        readers.enter();
        readers.enter();
        let mut waiting = Box::pin(readers.is_end_read());
        assert_eq!((&mut waiting).now_or_never(), None);
        readers.leave();
        assert_eq!((&mut waiting).now_or_never(), None, "one is left");
        readers.note_end_read();
        assert_eq!((&mut waiting).now_or_never(), Some(true));
        readers.leave();
        assert_eq!(readers.is_end_read().now_or_never(), Some(true), "for good");
    }

    #[test]
    fn end_is_not_read_by_readers_who_leave_before() {
        let readers = Attendance::default();
        readers.enter();
        let mut waiting = Box::pin(readers.is_end_read());
        assert_eq!((&mut waiting).now_or_never(), None);
        readers.leave();
        assert_eq!((&mut waiting).now_or_never(), Some(false));
    }
}
