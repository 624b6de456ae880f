//! A stream's handle to its records in the journal, and records whose retention a client has ended.

use super::stream_logs::StreamLogs;
use super::stream_slot::{Claim, PreparedNews, StreamSlot};
use crate::records::{ControlState, NotedEnd, outcome};
use generate::error::ApiError;
use generate::stream_source::{EndedTime, StartedGeneration};
use journal::BlobReference;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

/// How long a response waits until what it confirms is in the journal.
pub(crate) const WRITTEN_TIMEOUT: Duration = Duration::from_secs(1);

/// The records of one stream. The drop ends their retention.
pub struct DurableStream {
    slot: Arc<StreamSlot>,
    /// Whether the stream continues after a restart of the process.
    can_continue: bool,
    /// Files that the records name.
    blobs: Vec<BlobReference>,
}

impl DurableStream {
    pub(crate) fn new(slot: Arc<StreamSlot>) -> Self {
        Self {
            slot,
            can_continue: true,
            blobs: Vec::new(),
        }
    }

    /// The records with the files that they name, which are kept as long.
    pub(crate) fn with_blobs(mut self, blobs: Vec<BlobReference>) -> Self {
        self.blobs = blobs;
        self
    }

    /// The files that the records name, but for those that are missing.
    pub(crate) fn blobs(&self) -> &[BlobReference] {
        &self.blobs
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
        let _ =
            tokio::time::timeout(WRITTEN_TIMEOUT, self.slot.wait_for(self.slot.changes())).await;
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
        self.0.slot.id
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
