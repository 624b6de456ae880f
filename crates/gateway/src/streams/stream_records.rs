//! The records of a stream in the journal, as the stream's record uses them.

use super::steering::SteeringState;
use super::stream_record::StreamRecord;
use crate::durability::{ControlState, DurableStream, unix_us};
use wire::clock;

impl StreamRecord {
    /// Control updates that all requests have applied in this process.
    pub(crate) fn updates_applied(&self) -> u64 {
        let requests = self.started().into_iter().flat_map(|s| &s.requests);
        let applied = requests.map(|request| request.progress.updates_applied());
        applied.min().unwrap_or(0)
    }

    /// Records the control updates of a durable stream.
    pub(crate) fn record_control(&self, steering: &SteeringState) {
        if let Some(durable) = self.durable() {
            let now = clock::now();
            let (count, history) = self.control_history().timed_updates(now, unix_us(now));
            durable.steer(ControlState {
                count,
                history,
                editions: self.editions().recorded(),
                ..steering.control_state().clone()
            });
        }
    }

    /// Whether the stream continues after a restart of the process.
    pub fn is_durable(&self) -> bool {
        self.durable().is_some_and(DurableStream::is_durable)
    }

    /// Whether the stream is recorded, so that it continues after a restart of the process once the records are written.
    pub fn is_recorded(&self) -> bool {
        self.durable().is_some_and(DurableStream::is_recorded)
    }

    /// Waits until everything that a client was told by now is in the journal, at most a second. Returns whether the
    /// stream is durable.
    pub async fn wait_written(&self) -> bool {
        match self.durable() {
            Some(durable) => durable.written().await,
            None => false,
        }
    }
}
