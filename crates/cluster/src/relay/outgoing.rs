//! Messages of a relay about the requests on engines: orders until the engine has acknowledged them, requests in parts,
//! and the view of both.

use super::SubmitOutcome;
use super::assignment::{Assignment, Place};
use super::core::{Action, Relay};
use crate::messages::{
    Attempt, MESSAGE_BYTES_MAX, ORDERS_MAX, Order, OrderKind, READS_MAX, ReadRequest, Run,
    RunReply, encode_orders,
};
use crate::names::InstanceId;
use crate::nats::{SubjectKind, UnreadableMessages};
use async_nats::{Client, Request};
use engine::Phase;
use engine::remote::RelayedCounts;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

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

/// Orders in the order of their numbers. At most [`engine::UPDATES_MAX`] updates wait at a handle, pauses and resumes are
/// only queued when they change something.
#[derive(Debug, Default)]
pub(super) struct OrderQueue {
    waiting: VecDeque<(u32, OrderKind)>,
    /// Number of the last order.
    last: u32,
    sent_at: Option<Instant>,
}

impl OrderQueue {
    /// Adds an order, which is sent at the next [`OrderQueue::send`].
    pub(super) fn push(&mut self, kind: OrderKind) {
        self.last += 1;
        self.waiting.push_back((self.last, kind));
        self.sent_at = None;
    }

    /// Removes orders up to this number.
    pub(super) fn acknowledge(&mut self, applied: u32) {
        while self.waiting.front().is_some_and(|order| order.0 <= applied) {
            self.waiting.pop_front();
        }
    }

    /// Appends all waiting orders to `into`, where there is a new one or the last time is `repeat` ago.
    pub(super) fn send(
        &mut self,
        attempt: Attempt,
        (now, repeat): (Instant, Duration),
        into: &mut Vec<Order>,
    ) {
        let is_due = |at: Instant| now.saturating_duration_since(at) >= repeat;
        if self.waiting.is_empty() || !self.sent_at.is_none_or(is_due) {
            return;
        }
        self.sent_at = Some(now);
        into.extend(self.waiting.iter().map(|(sequence, kind)| Order {
            handle: attempt.handle,
            attempt: attempt.attempt,
            sequence: *sequence,
            kind: kind.clone(),
        }));
    }
}

/// Messages of these orders, divided where they are longer than a message may be.
pub(super) fn encode_in_parts(gateway: InstanceId, orders: &[Order]) -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    if encode_orders(gateway, orders, &mut message).is_ok() {
        debug_assert!(message.len() <= MESSAGE_BYTES_MAX);
        return vec![message];
    }
    let (left, right) = orders.split_at(orders.len() / 2);
    if left.is_empty() {
        return Vec::new();
    }
    let left = encode_in_parts(gateway, left);
    left.into_iter()
        .chain(encode_in_parts(gateway, right))
        .collect()
}

/// Time for the answer to one part of a request: the engine reads a long record and compiles constraints.
pub(super) const SUBMIT_WAIT: Duration = Duration::from_secs(10);
/// Time for that of a request with images, which the engine decodes.
pub(super) const FILES_SUBMIT_WAIT: Duration = Duration::from_secs(45);

/// Sends the parts of a request one after the other; each is answered within `wait`. The answer to the last one counts.
pub(super) async fn submit(
    client: &Client,
    subject: &str,
    (run, wait): (&Run, Duration),
    unreadable: &UnreadableMessages,
) -> SubmitOutcome {
    let Ok(parts) = run.encode_parts() else {
        return SubmitOutcome::TooLong;
    };
    let mut last = SubmitOutcome::Unanswered;
    for part in parts {
        let request = Request::new().payload(part.into());
        let request = request.timeout(Some(wait));
        let answer = client.send_request(subject.to_owned(), request).await;
        let reply = answer.ok().map(|answer| RunReply::decode(&answer.payload));
        last = match reply {
            Some(Ok(RunReply::Received)) => SubmitOutcome::Unanswered,
            Some(Ok(reply)) => return SubmitOutcome::Answered(reply),
            Some(Err(why)) => {
                unreadable.note(SubjectKind::Answer, why);
                return SubmitOutcome::Unanswered;
            }
            None => return SubmitOutcome::Unanswered,
        };
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::decode_orders;
    use engine::RequestUpdate;

    #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn orders_are_repeated_until_acknowledged() {
        let (now, repeat) = (start(), Duration::from_millis(100));
        let attempt = Attempt {
            handle: 7,
            attempt: 2,
        };
        let mut queue = OrderQueue::default();
        let sent = |queue: &mut OrderQueue, ms| {
            let mut orders = Vec::new();
            let now = now + Duration::from_millis(ms);
            queue.send(attempt, (now, repeat), &mut orders);
            let numbers: Vec<u32> = orders.iter().map(|order| order.sequence).collect();
            assert!(orders.iter().all(|o| (o.handle, o.attempt) == (7, 2)));
            numbers
        };
        assert!(sent(&mut queue, 0).is_empty());
        queue.push(OrderKind::Pause);
        assert_eq!(sent(&mut queue, 0), [1]);
        assert!(sent(&mut queue, 99).is_empty());
        assert_eq!(sent(&mut queue, 100), [1]);
        queue.push(OrderKind::Resume);
        assert_eq!(sent(&mut queue, 101), [1, 2], "a new order");
        queue.acknowledge(1);
        assert_eq!(sent(&mut queue, 201), [2]);
        queue.acknowledge(2);
        assert!(sent(&mut queue, 999).is_empty());
        queue.push(OrderKind::Cancel);
        assert_eq!(sent(&mut queue, 999), [3]);
    }

    #[test]
    fn long_orders_are_divided() {
        let update = RequestUpdate {
            inject: vec![u32::MAX; 1024],
            ..RequestUpdate::default()
        };
        let order = |sequence| Order {
            handle: 1,
            attempt: 1,
            sequence,
            kind: OrderKind::Update(Box::new(update.clone())),
        };
        let orders: Vec<_> = (0..500).map(order).collect();
        let messages = encode_in_parts(InstanceId(1), &orders);
        assert!(messages.len() > 1);
        let decoded = messages.iter().flat_map(|m| decode_orders(m).unwrap().1);
        assert_eq!(decoded.collect::<Vec<_>>(), orders);
    }
}
