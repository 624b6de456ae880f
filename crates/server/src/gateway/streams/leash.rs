//! What ties a stream to the client that opened it.

use super::entry::Entry;
use std::sync::Arc;

/// Held by the reader of a stream that is cancelled when its client leaves, unless the stream was let go
/// of before: then it goes on as a resumable one.
pub(crate) struct Leash(Arc<Entry>);

impl Leash {
    /// Of this stream.
    pub(crate) fn new(entry: &Arc<Entry>) -> Self {
        Self(Arc::clone(entry))
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if !self.0.governor().has_let_go() && !self.0.is_over() {
            self.0.cancel();
        }
    }
}
