//! Gates of logs: what the writer has written, and how much of that readers see.

use crate::End;
use crate::log::Log;
use crate::sync::Arc;
use crate::tap::Tap;

/// The recorder's handle to a gated log. A gate sees all that is written, and decides what readers and taps see. A
/// gate is not a reader: a log whose readers are gone is abandoned even if there is a gate.
///
/// Clones are holders of one gate. The drop of the last holder opens the gate: readers never wait for a recorder that
/// is gone.
pub struct Gate<T> {
    holder: Arc<Holder<T>>,
    /// The log of the holder, without a second step.
    log: Arc<Log<T>>,
}

/// The share of all clones of a gate.
struct Holder<T> {
    log: Arc<Log<T>>,
}

impl<T: Copy + Send + Sync + 'static> Gate<T> {
    pub(crate) fn new(log: Arc<Log<T>>) -> Self {
        let of_holder = Arc::clone(&log);
        Self {
            holder: Arc::new(Holder { log: of_holder }),
            log,
        }
    }

    /// Items appended so far, shown or not.
    pub fn written_len(&self) -> u64 {
        self.log().written_len()
    }

    /// The writer's end, shown or not. After `Some`, [`Gate::written_len`] is final: a recorder loads the end first and
    /// the length afterwards.
    pub fn written_end(&self) -> Option<End> {
        self.log().written_end()
    }

    /// Copies written items from index `from` on into `buf`, shown or not, as many as there are and fit. Returns their
    /// number.
    pub fn copy_written(&self, from: u64, buf: &mut [T]) -> usize {
        self.log().copy_written(from, buf)
    }

    /// Items that readers see.
    pub fn shown_len(&self) -> u64 {
        self.log().visible_len()
    }

    /// Shows the first `len` items and wakes the readers. Only grows; a `len` beyond the items written counts as their
    /// number.
    pub fn show(&self, len: u64) {
        self.log().show(len);
    }

    /// Shows all items and the end, and wakes the readers. Without effect while the writer has not ended the log.
    /// Afterwards the gate is open.
    pub fn show_end(&self) {
        if self.written_end().is_some() {
            self.open();
        }
    }

    /// Opens the gate forever: all that is written, now or later, is shown at once. Idempotent.
    pub fn open(&self) {
        self.log().show_all();
    }

    /// Whether everything is shown: after [`Gate::open`] or [`Gate::show_end`].
    pub fn is_open(&self) -> bool {
        self.log().is_all_shown()
    }

    /// A handle to the log that does not count as a reader, and sees what is shown.
    pub fn tap(&self) -> Tap<T> {
        Tap::new(self.log())
    }

    fn log(&self) -> &Arc<Log<T>> {
        &self.log
    }
}

impl<T> Clone for Gate<T> {
    fn clone(&self) -> Self {
        Self {
            holder: Arc::clone(&self.holder),
            log: Arc::clone(&self.log),
        }
    }
}

impl<T> Drop for Holder<T> {
    /// Opens the gate; without effect on an open one.
    fn drop(&mut self) {
        self.log.show_all();
    }
}
