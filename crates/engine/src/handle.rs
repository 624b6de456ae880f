//! The engine seen from other threads.

use crate::inbox::Inbox;
use crate::{Rejected, Request, RequestId, Stats, Steer, Tuning, Unsteered};
use model::Dims;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

/// A clonable way to reach the engine thread. Bounded; never blocks.
///
/// When the last clone is dropped, the engine finishes what it has and leaves.
#[derive(Clone)]
pub struct Handle {
    door: Arc<Door>,
}

/// What all clones of a handle share; its drop closes the inbox.
pub(crate) struct Door {
    inbox: Arc<Inbox>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.inbox.close(None);
    }
}

impl Handle {
    /// Another handle through the door if it is still open, else a new one.
    pub(crate) fn through(door: &mut Weak<Door>, inbox: &Arc<Inbox>) -> Self {
        let open = door.upgrade().unwrap_or_else(|| {
            Arc::new(Door {
                inbox: Arc::clone(inbox),
            })
        });
        *door = Arc::downgrade(&open);
        Self { door: open }
    }

    /// Hands a request to the engine.
    ///
    /// # Errors
    /// The request comes back with the reason. All bad fields are named at once.
    pub fn submit(&self, request: Request) -> Result<RequestId, Rejected> {
        let waker = Waker::from(Arc::clone(&self.door.inbox));
        for choice in &request.choices {
            choice.tokens.wake_on_credit(waker.clone());
        }
        self.door.inbox.submit(request)
    }

    /// Asks for a request to end with `End::Cancelled`; takes effect within one step. Idempotent.
    pub fn cancel(&self, id: RequestId) {
        self.door.inbox.cancel(id);
    }

    /// Asks for a request to stand still: from the next step on it is not started, and has no
    /// rows. What pages it has it keeps while they are not short. Its total clock and its deadline
    /// go on. Idempotent; nothing once it has ended.
    pub fn pause(&self, id: RequestId) {
        self.door.inbox.pause(id, true);
    }

    /// Lets a paused request go on from the next step. Idempotent.
    pub fn resume(&self, id: RequestId) {
        self.door.inbox.pause(id, false);
    }

    /// Changes a request from the head of the next step on; see [`Steer`]. Nothing once it has ended.
    ///
    /// # Errors
    /// A bound is broken, or too many changes wait.
    pub fn steer(&self, id: RequestId, steer: Steer) -> Result<(), Unsteered> {
        self.door.inbox.steer(id, steer)
    }

    /// Takes no new requests (`Rejected::Closed`), goes on until all have ended; those that
    /// have not at `drain_deadline` end with `Failed(Shutdown)`. Later calls may only bring the
    /// deadline forward.
    pub fn shutdown(&self, drain_deadline: Instant) {
        self.door.inbox.close(Some(drain_deadline));
    }

    /// From the next step on; the rest of [`crate::EngineConfig`] stays as it was.
    pub fn tune(&self, tuning: Tuning) {
        self.door.inbox.tuning.set(tuning);
        self.door.inbox.unpark();
    }

    /// The engine's counters.
    pub fn stats(&self) -> &Stats {
        &self.door.inbox.stats
    }

    /// The model's sizes.
    pub fn dims(&self) -> Dims {
        self.door.inbox.dims
    }

    /// Sequences that may be started and not ended ([`crate::EngineConfig::sequences_max`]).
    pub fn sequences_max(&self) -> usize {
        self.door.inbox.config.sequences_max
    }

    /// Entries of the model's hidden states; 0: it gives none, and no embeddings.
    pub fn hidden_dim(&self) -> usize {
        self.door.inbox.hidden_dim
    }

    /// What the `*_ns` of a [`crate::Progress`] count from.
    pub fn epoch(&self) -> Instant {
        self.door.inbox.epoch
    }
}
