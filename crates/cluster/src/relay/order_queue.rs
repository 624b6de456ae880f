//! Orders for one attempt of a request, until the engine has acknowledged them, and the messages of orders.

use crate::messages::{Attempt, MESSAGE_BYTES_MAX, Order, OrderKind, encode_orders};
use crate::names::InstanceId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

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
