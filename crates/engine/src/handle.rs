//! Handles: access to the engine from other threads.

use crate::inbox::Inbox;
use crate::validate::prompt_tokens_max;
use crate::{Rejected, Request, RequestId, RequestUpdate, Stats, Tuning, UpdateRejected};
use model::{Dims, EncoderDims};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

/// Access to the engine thread. Cloneable; never blocks.
///
/// When the last clone is dropped, the engine finishes all requests and stops.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<HandleShared>,
}

/// The state that all clones of a handle share; the drop closes the inbox.
pub(crate) struct HandleShared {
    inbox: Arc<Inbox>,
}

impl Drop for HandleShared {
    fn drop(&mut self) {
        self.inbox.close(None);
    }
}

impl Handle {
    /// A clone of the live handles if there are any, otherwise the first handle.
    pub(crate) fn reuse_or_open(live: &mut Weak<HandleShared>, inbox: &Arc<Inbox>) -> Self {
        let shared = live.upgrade().unwrap_or_else(|| {
            Arc::new(HandleShared {
                inbox: Arc::clone(inbox),
            })
        });
        *live = Arc::downgrade(&shared);
        Self { shared }
    }

    /// Submits a request.
    ///
    /// # Errors
    /// Returns the request with the reason, which names all invalid fields.
    pub fn submit(&self, request: Request) -> Result<RequestId, Rejected> {
        let waker = Waker::from(Arc::clone(&self.shared.inbox));
        for choice in &request.choices {
            choice.tokens.wake_on_credit(waker.clone());
        }
        self.shared.inbox.submit(request)
    }

    /// Ends a request with `End::Cancelled`, within one step. Idempotent.
    pub fn cancel(&self, id: RequestId) {
        self.shared.inbox.cancel(id);
    }

    /// Pauses a request: from the next step on the request is not started, or gets no
    /// rows. Pages are kept while they are not short. The total clock and the deadline
    /// go on. Idempotent; no effect on an ended request.
    pub fn pause(&self, id: RequestId) {
        self.shared.inbox.set_paused(id, true);
    }

    /// Resumes a paused request from the next step. Idempotent.
    pub fn resume(&self, id: RequestId) {
        self.shared.inbox.set_paused(id, false);
    }

    /// Updates a running request from the head of the next step on; see [`RequestUpdate`]. No effect on an ended request.
    ///
    /// # Errors
    /// The update breaks a bound, or too many updates wait.
    pub fn update(&self, id: RequestId, update: RequestUpdate) -> Result<(), UpdateRejected> {
        self.shared.inbox.update(id, update)
    }

    /// Rejects new requests (`Rejected::Closed`) and goes on until all have ended; those that
    /// have not at `drain_deadline` end with `Failed(Shutdown)`. Later calls may only bring the
    /// deadline forward.
    pub fn shutdown(&self, drain_deadline: Instant) {
        self.shared.inbox.close(Some(drain_deadline));
    }

    /// Sets the thread that this and all other handles wake.
    pub(crate) fn set_thread(&self, thread: std::thread::Thread) {
        self.shared.inbox.set_thread(thread);
    }

    /// The thread that this and all other handles wake.
    #[cfg(test)]
    pub(crate) fn woken_thread(&self) -> Option<std::thread::ThreadId> {
        self.shared.inbox.woken_thread()
    }

    /// Changes settings from the next step on; the rest of [`crate::EngineConfig`] is fixed.
    pub fn tune(&self, tuning: Tuning) {
        self.shared.inbox.tuning.set(tuning);
        self.shared.inbox.unpark();
    }

    /// Whether the engine is another process, so that requests need [`Request::remote`].
    pub fn is_remote(&self) -> bool {
        self.shared.inbox.is_remote
    }

    /// The engine's counters.
    pub fn stats(&self) -> &Stats {
        &self.shared.inbox.stats
    }

    /// The engine's counters, for a reader that does not keep the engine.
    pub fn shared_stats(&self) -> Arc<Stats> {
        Arc::clone(&self.shared.inbox.stats)
    }

    /// The model's sizes.
    pub fn dims(&self) -> Dims {
        self.shared.inbox.dims
    }

    /// The bound of live sequences, [`crate::EngineConfig::sequences_max`].
    pub fn sequences_max(&self) -> usize {
        self.shared.inbox.config.sequences_max
    }

    /// Entries of the model's hidden states; 0: the model gives none, and no embeddings.
    pub fn hidden_dim(&self) -> usize {
        self.shared.inbox.hidden_dim
    }

    /// Whether the model generates text; an encoder computes embeddings only.
    pub fn generates(&self) -> bool {
        self.shared.inbox.is_causal
    }

    /// Sizes of the model's encoder: rows of vectors in place of tokens ([`Request::media`]). `None`: the model takes tokens only.
    pub fn encoder(&self) -> Option<EncoderDims> {
        self.shared.inbox.media.encoder
    }

    /// Tokens of the longest prompt: one position of a model that generates stays free.
    pub fn prompt_tokens_max(&self) -> usize {
        let inbox = &self.shared.inbox;
        prompt_tokens_max(&inbox.dims, inbox.is_causal)
    }

    /// The zero of the `*_ns` times of a [`crate::Progress`].
    pub fn epoch(&self) -> Instant {
        self.shared.inbox.epoch
    }
}
