//! Attempts that engines are to forget: the order is repeated a few times, since nothing acknowledges it.

use crate::messages::{Attempt, Order, OrderKind};
use crate::names::InstanceId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How often the order is sent.
const REPEATS: u32 = 3;
/// Time between two of them.
const REPEAT: Duration = Duration::from_millis(400);
/// Attempts at one time; beyond that the oldest is dropped. Its engine drops it later by itself.
pub(super) const FAREWELLS_MAX: usize = 1 << 14;

/// Attempts to forget, in the order of the next repetition.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    queue: VecDeque<Farewell>,
}

#[derive(Debug)]
struct Farewell {
    engine: InstanceId,
    attempt: Attempt,
    left: u32,
    at: Instant,
}

impl Farewells {
    /// The engine is to forget this attempt.
    pub(super) fn push(&mut self, engine: InstanceId, attempt: Attempt, now: Instant) {
        let mut queued = self.queue.iter().take(64);
        if queued.any(|farewell| (farewell.engine, farewell.attempt) == (engine, attempt)) {
            return;
        }
        if self.queue.len() >= FAREWELLS_MAX {
            self.queue.pop_back();
        }
        self.queue.push_front(Farewell {
            engine,
            attempt,
            left: REPEATS,
            at: now,
        });
    }

    /// Passes the orders that are due to `send`.
    pub(super) fn send(&mut self, now: Instant, mut send: impl FnMut(InstanceId, Order)) {
        while let Some(mut farewell) = self.queue.pop_front_if(|farewell| farewell.at <= now) {
            let order = Order {
                handle: farewell.attempt.handle,
                attempt: farewell.attempt.attempt,
                sequence: 0,
                kind: OrderKind::Forget,
            };
            send(farewell.engine, order);
            farewell.left -= 1;
            farewell.at = now + REPEAT;
            if farewell.left > 0 {
                self.queue.push_back(farewell);
            }
        }
    }

    /// Whether nothing is to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// An engine that is gone needs no orders.
    pub(super) fn drop_engine(&mut self, engine: InstanceId) {
        self.queue.retain(|farewell| farewell.engine != engine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn order_is_repeated_and_then_dropped() {
        let (mut farewells, now) = (Farewells::default(), start());
        let attempt = |handle| Attempt { handle, attempt: 1 };
        let engine = InstanceId(5);
        farewells.push(engine, attempt(1), now);
        farewells.push(engine, attempt(1), now);
        farewells.push(engine, attempt(2), now);
        let mut sent = Vec::new();
        for ms in (0..2000).step_by(100) {
            let now = now + Duration::from_millis(ms);
            farewells.send(now, |_, order| sent.push((ms, order.handle)));
        }
        let expected = [0, 400, 800].map(|ms| [(ms, 1), (ms, 2)]);
        sent.sort_unstable();
        assert_eq!(sent, expected.concat());
        assert!(farewells.is_empty());
        farewells.push(engine, attempt(3), now);
        farewells.drop_engine(engine);
        assert!(farewells.is_empty());
    }

    #[test]
    fn attempts_are_bounded() {
        let (mut farewells, now) = (Farewells::default(), start());
        for handle in 0..=FAREWELLS_MAX as u64 {
            farewells.push(InstanceId(1), Attempt { handle, attempt: 1 }, now);
        }
        assert_eq!(farewells.queue.len(), FAREWELLS_MAX);
    }
}
