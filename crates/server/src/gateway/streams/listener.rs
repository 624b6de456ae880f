//! One reader's place beside a stream, from before it reads until it leaves.

use super::entry::Entry;
use super::governor::Seat;
use std::sync::Arc;

/// Held for as long as the reader is there; its drop says that it left.
pub(crate) struct Listener {
    entry: Arc<Entry>,
    seat: Seat,
}

impl Listener {
    /// For the client that opens the stream. It governs from now on, also while the stream is not started:
    /// a stream that nobody governs is given what it may make alone.
    pub(crate) fn opening(entry: &Arc<Entry>) -> Self {
        let listener = Self::joining(entry);
        listener.govern();
        listener
    }

    /// For whoever comes later, and governs when it reads and nobody else does.
    pub(crate) fn joining(entry: &Arc<Entry>) -> Self {
        Self {
            entry: Arc::clone(entry),
            seat: entry.governor().seat(),
        }
    }

    /// The stream.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// From now on this reader returns credit, whoever did before.
    pub(crate) fn govern(&self) {
        self.entry.governor().take(self.seat);
    }

    /// Whether it is this one who returns credit; it is, from now on, if it was nobody.
    pub(crate) fn governs(&self) -> bool {
        self.entry.governor().governs(self.seat)
    }
}

impl Drop for Listener {
    /// A stream that outlives the one who governs gets what it may have alone.
    fn drop(&mut self) {
        if self.entry.governor().leave(self.seat) {
            self.entry.detach();
        }
    }
}
