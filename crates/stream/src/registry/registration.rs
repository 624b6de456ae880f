//! The right to be in the registry as an open stream.

use super::Registry;
use super::gone::Eviction;
use crate::StreamId;
use crate::sync::Arc;
use std::time::Instant;

/// The right to be in the registry as an open stream. Whoever runs the stream holds it and tells
/// its [end](Self::ended). Dropping it without a word takes the entry out, so that a stream which
/// could not be started, or whose keeper panicked, does not stay open for ever.
///
/// It holds the registry and the payload: it is not to be kept inside that payload.
#[must_use = "dropping a registration takes the entry out"]
pub struct Registration<E> {
    registry: Registry<E>,
    id: StreamId,
    payload: Arc<E>,
    /// Whether the entry's end is this value's to tell.
    mine: bool,
}

impl<E> Registration<E> {
    pub(super) fn new(registry: Registry<E>, id: StreamId, payload: Arc<E>) -> Self {
        Self {
            registry,
            id,
            payload,
            mine: true,
        }
    }

    /// The stream's name.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// What was registered.
    pub fn payload(&self) -> &Arc<E> {
        &self.payload
    }

    /// The stream has ended: [`Registry::ended`].
    pub fn ended(mut self, now: Instant, bytes: usize) -> bool {
        self.mine = false;
        self.registry.ended(self.id, now, bytes)
    }

    /// Leaves the entry open without this value; somebody else tells its end, through
    /// [`Registry::ended`] or [`Registry::forget`].
    pub fn keep(mut self) -> Arc<E> {
        self.mine = false;
        Arc::clone(&self.payload)
    }
}

impl<E> Drop for Registration<E> {
    fn drop(&mut self) {
        if self.mine {
            self.registry.take_out(self.id, Eviction::Dropped);
        }
    }
}
