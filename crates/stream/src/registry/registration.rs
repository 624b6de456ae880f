//! Registrations of open streams.

use super::Registry;
use super::gone::Eviction;
use crate::StreamId;
use crate::sync::Arc;
use std::time::Instant;

/// The registration of an open stream, held by the owner of the generation, which reports the
/// [end](Self::ended). A drop without an end removes the entry, so that a stream that could not start, or whose
/// owner panicked, does not stay open forever.
///
/// Holds the registry and the payload, so do not store it inside that payload.
#[must_use = "dropping a registration takes the entry out"]
pub struct Registration<E> {
    registry: Registry<E>,
    id: StreamId,
    payload: Arc<E>,
    /// Whether this value has to report the end.
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

    /// Id of the stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The registered payload.
    pub fn payload(&self) -> &Arc<E> {
        &self.payload
    }

    /// Reports the end, as [`Registry::ended`].
    pub fn ended(mut self, now: Instant, bytes: usize) -> bool {
        self.mine = false;
        self.registry.ended(self.id, now, bytes)
    }

    /// Leaves the entry open without this value; the end is reported through [`Registry::ended`] or
    /// [`Registry::forget`].
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
