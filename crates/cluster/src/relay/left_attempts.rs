//! Attempts that engines keep for the gateway that continues their streams.

use crate::messages::Attempt;
use crate::names::InstanceId;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Time that another gateway has to adopt an attempt while this process runs; afterwards the engine is to forget it.
const ADOPTED_IN: Duration = Duration::from_secs(60);
/// Attempts at one time; beyond that the oldest are forgotten.
const LEFT_MAX: usize = 1 << 14;

/// Attempts in the order in which this gateway has left them.
#[derive(Debug, Default)]
pub(super) struct LeftAttempts {
    queue: VecDeque<(Instant, InstanceId, Attempt)>,
    known: HashSet<(InstanceId, u64, u32)>,
}

impl LeftAttempts {
    /// Another gateway continues the stream of this attempt.
    pub(super) fn push(&mut self, engine: InstanceId, attempt: Attempt, now: Instant) {
        if self.known.insert(key(engine, attempt)) {
            self.queue.push_back((now + ADOPTED_IN, engine, attempt));
        }
    }

    /// Whether the engine is to keep this attempt.
    pub(super) fn contains(&self, engine: InstanceId, attempt: Attempt) -> bool {
        self.known.contains(&key(engine, attempt))
    }

    /// Passes the attempts to `forget` whose time is over.
    pub(super) fn expire(&mut self, now: Instant, mut forget: impl FnMut(InstanceId, Attempt)) {
        while let Some(&(at, engine, attempt)) = self.queue.front() {
            if at > now && self.queue.len() <= LEFT_MAX {
                return;
            }
            self.queue.pop_front();
            self.known.remove(&key(engine, attempt));
            forget(engine, attempt);
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

fn key(engine: InstanceId, attempt: Attempt) -> (InstanceId, u64, u32) {
    (engine, attempt.handle, attempt.attempt)
}
