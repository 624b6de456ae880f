//! The records of a stream in the journal, as the stream uses them.

use super::control::SteeringState;
use super::stream_logs::StreamLogs;
use super::stream_record::StreamRecord;
use super::stream_slot::{Claim, PreparedNews, StreamSlot};
use crate::records::{ControlState, NotedEnd, outcome, unix_us};
use engine::Token;
use futures_util::StreamExt;
use generate::ended_time::EndedTime;
use generate::error::ApiError;
use generate::stream_source::StartedGeneration;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;
use stream::Read;
use wire::clock;

/// How long a response waits until what it confirms is in the journal.
pub(crate) const WRITTEN_TIMEOUT: Duration = Duration::from_secs(1);

/// The records of one stream. The drop ends their retention.
pub struct DurableStream {
    slot: Arc<StreamSlot>,
    /// Whether the stream continues after a restart of the process.
    can_continue: bool,
}

impl DurableStream {
    pub(crate) fn new(slot: Arc<StreamSlot>) -> Self {
        let can_continue = true;
        Self { slot, can_continue }
    }

    /// The records of a stream that is lost with the process, and that a later process only knows by name.
    pub(crate) fn without_continuation(mut self) -> Self {
        self.can_continue = false;
        self
    }

    pub(crate) fn slot(&self) -> &Arc<StreamSlot> {
        &self.slot
    }

    /// Records the prompts of a submission: `body` for the record, `description` for a rewriting.
    pub(crate) fn record_prompts(&self, body: Vec<u8>, description: Vec<u8>) {
        self.slot.set_description_bytes(description.len());
        self.slot.change(|inbox| {
            inbox.news.prepared = Some(PreparedNews {
                body: body.into(),
                description: description.into(),
            });
        });
    }

    /// Reads the logs of a generation from now on.
    pub fn attach_logs(
        &self,
        generation: (&StartedGeneration, &Arc<EndedTime>),
        has_logprobs: bool,
        top_n: usize,
    ) {
        let logs = StreamLogs::new(generation, has_logprobs, top_n).map(Arc::new);
        self.slot.change(|inbox| {
            let shows_all = inbox.is_open || inbox.is_forgotten;
            if let Some(logs) = logs.as_ref().filter(|_| shows_all) {
                logs.open_gates();
            }
            inbox.logs = logs;
        });
    }

    /// Records that this process takes a recovered stream over.
    pub fn claim(&self, claim: Claim) {
        self.slot.change(|inbox| inbox.news.claim = Some(claim));
    }

    /// Records the control updates of the stream.
    pub(crate) fn steer(&self, control: ControlState) {
        self.slot.change(|inbox| inbox.news.control = Some(control));
    }

    /// Records whether a client has paused the stream.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.slot
            .change(|inbox| inbox.news.is_paused = Some(is_paused));
    }

    /// Records why the stream will never start. A shutdown is no reason: the stream starts in the next process.
    pub(crate) fn reject(&self, error: &ApiError) {
        if self.is_left_to_next() {
            return;
        }
        self.replace_outcome(outcome::encode(error));
    }

    /// Records which reports of the end are in the journal. `rejection`: why the stream never started.
    pub(crate) fn note_end(&self, rejection: Option<&ApiError>, noted: NotedEnd) {
        self.replace_outcome(outcome::encode_noted(rejection, noted));
    }

    fn replace_outcome(&self, outcome: Vec<u8>) {
        self.slot
            .change(|inbox| inbox.news.outcome = Some(outcome.into()));
    }

    /// Whether the process shuts down: a stream that has not started is left to the next process.
    pub(crate) fn is_left_to_next(&self) -> bool {
        self.slot.state.is(|state| &state.is_shutting_down) || self.is_leaving()
    }

    /// From now on no end is recorded, and nothing is forgotten: another gateway continues the stream.
    pub(crate) fn leave(&self) {
        self.slot.is_leaving.store(true, Ordering::Release);
    }

    /// Whether [`Self::leave`] was called.
    pub(crate) fn is_leaving(&self) -> bool {
        self.slot.is_leaving()
    }

    /// Whether the logs have ended, and all their tokens are in the journal.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.slot.is_at_rest()
    }

    /// Shows readers everything from now on, also an end that is not recorded.
    pub(crate) fn show_all(&self) {
        self.slot.show_all();
    }

    /// Waits until everything recorded so far is in the journal, at most a second. Returns whether the stream is
    /// durable.
    pub async fn written(&self) -> bool {
        let _ = tokio::time::timeout(WRITTEN_TIMEOUT, self.slot.wait_for_changes()).await;
        self.is_durable()
    }

    /// Whether everything recorded so far is in the journal, and the stream continues after a restart of the process.
    pub fn is_durable(&self) -> bool {
        self.can_continue && self.slot.is_durable()
    }

    /// Whether the stream is recorded; `is_durable` follows once the records are written.
    pub(crate) fn is_recorded(&self) -> bool {
        self.can_continue && !self.slot.is_open()
    }

    /// Wakes the recorder when the logs of the stream grow.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.slot))
    }

    /// Makes the stream not durable, forever.
    pub(crate) fn give_up(&self) {
        self.slot.open_gates();
        self.slot.note_change();
    }
}

impl Drop for DurableStream {
    fn drop(&mut self) {
        self.slot.release();
    }
}

/// An object in the journal that is not a stream. The drop ends the retention.
pub struct StoredBlob(DurableStream);

impl StoredBlob {
    pub(crate) fn new(slot: Arc<StreamSlot>) -> Self {
        Self(DurableStream::new(slot))
    }

    /// Id of the object.
    pub(crate) fn id(&self) -> u128 {
        self.0.slot.id()
    }

    /// As [`DurableStream::written`].
    pub async fn written(&self) -> bool {
        self.0.written().await
    }

    /// Ends the retention before the drop.
    pub(crate) fn forget(&self, forgotten: &mut ForgottenRecords) {
        forgotten.add(&self.0);
    }

    /// Replaces the part of the object that may change.
    pub(crate) fn replace_outcome(&self, outcome: Vec<u8>) {
        self.0.replace_outcome(outcome);
    }

    /// Whether the object is in the journal. The journal may give objects up for space.
    pub fn is_durable(&self) -> bool {
        self.0.is_durable()
    }
}

impl From<DurableStream> for StoredBlob {
    /// An object that was recovered.
    fn from(recovered: DurableStream) -> Self {
        // The description and the outcome are enough for a rewriting.
        let slot = &recovered.slot;
        slot.change(|inbox| inbox.news.has_no_tokens = true);
        Self(recovered)
    }
}

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
            if matches!(change, generate::stream_change::Change::Ended { .. }) {
                break;
            }
        }
        // State changes are published before the logs are closed.
        for log in &started.choices {
            let Ok(mut reader) = log.tokens.attach(log.tokens.len()) else {
                continue;
            };
            let mut buffer = [Token {
                id: 0,
                logprob: 0.0,
            }; TOKENS_PER_READ];
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
