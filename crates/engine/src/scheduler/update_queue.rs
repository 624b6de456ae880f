//! Updates in flight: changes to running requests that wait for their requests' first tokens.

use crate::inbox::Inbox;
use crate::{RequestId, RequestUpdate, UPDATES_MAX};

/// Updates that were taken from the inbox and are not applied.
pub(super) struct UpdateQueue {
    updates: Vec<(RequestId, RequestUpdate)>,
}

impl UpdateQueue {
    pub(super) fn new() -> Self {
        Self {
            updates: Vec::with_capacity(UPDATES_MAX),
        }
    }

    /// Moves new updates in and takes all out, in order of arrival.
    pub(super) fn take_all(&mut self, inbox: &Inbox) -> Vec<(RequestId, RequestUpdate)> {
        inbox.take_updates(&mut self.updates);
        std::mem::take(&mut self.updates)
    }

    /// Returns the updates that have to wait longer.
    pub(super) fn put_back(&mut self, updates: Vec<(RequestId, RequestUpdate)>) {
        debug_assert!(self.updates.is_empty());
        self.updates = updates;
    }
}
