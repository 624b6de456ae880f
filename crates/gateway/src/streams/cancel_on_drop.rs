//! Cancels a stream when the client disconnects.

use super::stream_record::StreamRecord;
use std::sync::Arc;

/// Guard of a detachable stream's client: the drop of the guard cancels the stream, unless the client's credit was
/// revoked before. Such a stream continues as a resumable stream.
pub(crate) struct CancelOnDrop(Arc<StreamRecord>);

impl CancelOnDrop {
    /// A guard for this stream.
    pub(crate) fn new(record: &Arc<StreamRecord>) -> Self {
        Self(Arc::clone(record))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.0.credit_owner().was_revoked() && !self.0.is_over() {
            self.0.cancel();
        }
    }
}
