//! Attempts that are given up, and ends of requests.

use super::core::Relay;
use crate::messages::{Attempt, Order, OrderKind};
use crate::names::InstanceId;
use std::time::Instant;
use stream::{End, FailCode};

/// Attempts to forget between two polls. An engine is not ordered to forget further ones before it reports them again.
pub(super) const FORGOTTEN_MAX: usize = 1 << 14;

impl Relay {
    /// Takes a request back from its engine, for the next attempt.
    pub(super) fn take_back(&mut self, handle: u64, is_crash: bool, now: Instant) {
        let Some(placed) = self.requests.get_mut(&handle) else {
            return;
        };
        let given_up = placed.engine().map(|engine| (engine, placed.name(handle)));
        let may_retry = placed.take_back(is_crash, &self.config, now);
        if let Some((engine, name)) = given_up {
            self.forget(engine, name);
        }
        self.counters.resubmitted += 1;
        self.placement.ended(handle, &[], now);
        if !may_retry {
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
            self.forget(engine, placed.name(handle));
        }
        placed.relayed.finish_all(end, now);
    }

    /// Orders an engine to forget an attempt, once: an engine that does not get the order reports the attempt again
    /// ([`crate::executor::REPORT_AFTER`]), and is ordered again.
    pub(super) fn forget(&mut self, engine: InstanceId, attempt: Attempt) {
        if self.forgotten.len() < FORGOTTEN_MAX {
            self.forgotten.insert((engine, attempt));
        }
    }

    pub(super) fn collect_forgotten(&mut self) {
        for (engine, attempt) in std::mem::take(&mut self.forgotten) {
            let order = Order {
                handle: attempt.handle,
                attempt: attempt.attempt,
                sequence: 0,
                kind: OrderKind::Forget,
            };
            self.orders.entry(engine).or_default().push(order);
        }
    }
}
