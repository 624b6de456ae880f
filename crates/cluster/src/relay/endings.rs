//! Attempts that are given up, and ends of requests.

use super::core::Relay;
use crate::messages::Attempt;
use crate::names::InstanceId;
use std::time::Instant;
use stream::{End, FailCode};

impl Relay {
    /// Takes a request back from its engine, for the next attempt.
    pub(super) fn take_back(&mut self, handle: u64, is_crash: bool, now: Instant) {
        let Some(placed) = self.requests.get_mut(&handle) else {
            return;
        };
        if let Some(engine) = placed.engine() {
            self.farewells.push(engine, placed.name(handle), now);
        }
        self.counters.resubmitted += 1;
        self.placement.ended(handle, &[], now);
        if !placed.take_back(is_crash, &self.config, now) {
            self.end(handle, End::Failed(FailCode::CrashedEngines), now);
        }
    }

    /// Ends all open choices of a request, and the request on its engine.
    pub(super) fn end(&mut self, handle: u64, end: End, now: Instant) {
        let Some(mut placed) = self.requests.remove(&handle) else {
            return;
        };
        self.handles.remove(&(placed.model, placed.relayed.id()));
        self.placement.ended(handle, &[], now);
        if let Some(engine) = placed.engine() {
            let name = placed.name(handle);
            match placed.relayed.is_left() {
                true => self.left.push(engine, name, now),
                false => self.farewells.push(engine, name, now),
            }
        }
        placed.relayed.finish_all(end, now);
    }

    /// Orders an engine to forget an attempt, unless another gateway may adopt it.
    pub(super) fn forget(&mut self, engine: InstanceId, attempt: Attempt, now: Instant) {
        if !self.left.contains(engine, attempt) {
            self.farewells.push(engine, attempt, now);
        }
    }
}
