//! The records of a stream in the journal, as the stream's record uses them.

use super::control::SteeringState;
use super::durable_stream::{DurableStream, ForgottenRecords};
use super::stream_logs::NO_TOKEN;
use super::stream_record::StreamRecord;
use crate::records::{ControlState, unix_us};
use futures_util::StreamExt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use stream::Read;
use wire::clock;

/// Tokens that a wait for the end skips at a time.
const TOKENS_PER_READ: usize = 256;

/// How long a confirmation of a cancellation waits for the end: some steps of a slow model.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(5);

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

    /// Cancels the stream. Where there is a journal, waits until the end is recorded: a restart must not continue a stream
    /// whose cancellation was confirmed. At most some seconds; the stream ends in any case.
    pub async fn cancel_written(&self) {
        self.cancel();
        if self.durable().is_none() {
            return;
        }
        let ended = async {
            self.wait_for_end().await;
            self.wait_written().await;
        };
        let _ = tokio::time::timeout(CANCEL_WAIT_MAX, ended).await;
    }

    /// Waits for the end of all choices, without reading the logs.
    pub async fn wait_for_end(&self) {
        let Ok(started) = self.wait_for_outcome().await else {
            return;
        };
        let mut changes = self.transitions().follow_changes();
        while let Some(change) = changes.next().await {
            if matches!(change, generate::stream_source::Change::Ended { .. }) {
                break;
            }
        }
        // State changes are published before the logs are closed.
        for log in &started.choices {
            let Ok(mut reader) = log.tokens.attach(log.tokens.len()) else {
                continue;
            };
            let mut buffer = [NO_TOKEN; TOKENS_PER_READ];
            poll_fn(|cx| {
                loop {
                    match reader.poll_read(cx, &mut buffer) {
                        Poll::Ready(Read::Ended(_)) => return Poll::Ready(()),
                        Poll::Ready(Read::Items(_)) => {}
                        Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
                    }
                }
            })
            .await;
        }
    }

    /// Ends the retention of the stream's records at once.
    pub fn forget_records(&self) -> ForgottenRecords {
        let mut forgotten = ForgottenRecords::default();
        self.durable()
            .into_iter()
            .for_each(|durable| forgotten.add(durable));
        forgotten
    }
}
