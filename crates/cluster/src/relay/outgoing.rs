//! Messages of a relay about the requests on engines, and the view of them.

use super::assignment::{Assignment, Place};
use super::core::{Action, Relay};
use crate::messages::{Attempt, ORDERS_MAX, Order, OrderKind, READS_MAX, ReadRequest};
use engine::Phase;
use engine::remote::RelayedCounts;
use std::time::Instant;

impl Relay {
    /// Collects orders, credit and reads of a request.
    pub(super) fn collect_messages(&mut self, handle: u64, credit_due: bool, now: Instant) {
        let Some(placed) = self.requests.get_mut(&handle) else {
            return;
        };
        let Place::Running { engine } = placed.place else {
            return;
        };
        if self.connected_at.is_none() {
            return;
        }
        placed.queue_orders();
        let orders = self.orders.entry(engine).or_default();
        let name = placed.name(handle);
        placed
            .orders
            .send(name, (now, self.config.order_repeat), orders);
        if credit_due && placed.relayed.credit_window() > 0 {
            push_credit(placed, name, orders);
        }
        if let Some(read) = placed.due_read(handle, &self.config, now) {
            self.counters.gap_reads += u64::from(placed.has_gap);
            self.reads.entry(engine).or_default().push(read);
        }
    }

    /// Turns collected orders and reads into messages within their bounds.
    pub(super) fn pack_messages(&mut self) {
        for (&engine, orders) in &mut self.orders {
            for orders in orders.chunks(ORDERS_MAX / 8) {
                let orders = orders.to_vec();
                self.actions.push(Action::Order { engine, orders });
            }
            orders.clear();
        }
        self.orders
            .retain(|engine, _| self.engines.alive.contains(engine));
        for (engine, reads) in std::mem::take(&mut self.reads) {
            for entries in reads.chunks(READS_MAX) {
                let request = ReadRequest {
                    gateway: self.gateway,
                    entries: entries.to_vec(),
                };
                self.actions.push(Action::Read { engine, request });
            }
        }
    }

    pub(super) fn publish_counts(&self) {
        let mut counts = vec![RelayedCounts::default(); self.models.0.len()];
        for placed in self.requests.values() {
            let counts = &mut counts[placed.model];
            match placed.relayed.phase() {
                Phase::Queued => counts.queued += 1,
                Phase::Parked => counts.parked += 1,
                Phase::Paused => counts.paused += 1,
                Phase::Prefilling | Phase::Running | Phase::Ended => counts.running += 1,
            }
        }
        for (model, counts) in self.models.models().zip(counts) {
            model.inbox.publish_counts(counts);
        }
    }
}

/// Adds credit for what the readers accepted since the last time.
fn push_credit(placed: &mut Assignment, name: Attempt, orders: &mut Vec<Order>) {
    for (choice, credited) in placed.credited.iter_mut().enumerate() {
        let accepted = placed.relayed.accepted(choice).filter(|now| now > credited);
        let Some(accepted) = accepted.filter(|_| placed.relayed.may_compute(choice)) else {
            continue;
        };
        *credited = accepted;
        orders.push(Order {
            handle: name.handle,
            attempt: name.attempt,
            sequence: 0,
            kind: OrderKind::Credit {
                choice: u32::try_from(choice).unwrap_or(u32::MAX),
                accepted: u32::try_from(accepted).unwrap_or(u32::MAX),
            },
        });
    }
}
