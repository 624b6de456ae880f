//! Records whose retention a client has ended.

use super::durable_stream::{DurableStream, WRITTEN_TIMEOUT};
use super::stream_slot::StreamSlot;
use std::sync::Arc;

/// Streams and objects that a client has deleted. The deletion is confirmed after [`ForgottenRecords::written`]: a restart
/// must not bring them back.
#[derive(Default)]
#[must_use = "the deletion is confirmed when the journal has it"]
pub struct ForgottenRecords(Vec<(Arc<StreamSlot>, u64)>);

impl ForgottenRecords {
    /// Ends the retention of these records at once; readers that are attached see everything.
    pub(crate) fn add(&mut self, durable: &DurableStream) {
        let slot = durable.slot();
        self.0
            .extend(slot.forget().map(|changes| (Arc::clone(slot), changes)));
    }

    /// Adds the records of another deletion.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Waits until the deletions are in the journal, at most a second: a disk that stands still does not hold the client.
    pub async fn written(self) {
        let all = async {
            for (slot, changes) in self.0 {
                slot.wait_for(changes).await;
            }
        };
        let _ = tokio::time::timeout(WRITTEN_TIMEOUT, all).await;
    }
}
