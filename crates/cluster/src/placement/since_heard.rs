//! Requests of this gateway that began or ended at an engine since its last heartbeat, which has counted otherwise.

use std::time::{Duration, Instant};

/// A heartbeat that arrived this long after a placement counts the placement: it may have left before.
pub(super) const SETTLE: Duration = Duration::from_millis(50);

/// Requests that the last heartbeat of an engine does not count, and those that it counts and that have ended. At most as
/// many as the placement tracks requests.
#[derive(Debug, Default)]
pub(super) struct SinceHeard {
    begun: Vec<BegunRequest>,
    ended: Vec<EndedRequest>,
}

/// A request that was placed, with or without a first token.
#[derive(Debug)]
struct BegunRequest {
    id: u64,
    placed: Instant,
    /// Tokens of KV cache that the request may need.
    needed: u64,
}

#[derive(Debug)]
struct EndedRequest {
    ended: Instant,
    /// Tokens of KV cache that the request has left.
    left: u64,
}

impl SinceHeard {
    /// Forgets what a heartbeat of this arrival has counted. An engine sends the end of a request before a heartbeat
    /// without the request.
    pub(super) fn heard(&mut self, heard: Instant) {
        self.begun.retain(|begun| begun.placed + SETTLE > heard);
        self.ended.retain(|ended| ended.ended >= heard);
    }

    /// A request was placed that may need so many tokens of KV cache.
    pub(super) fn begin(&mut self, id: u64, needed: u64, now: Instant) {
        self.begun.push(BegunRequest {
            id,
            placed: now,
            needed,
        });
    }

    /// A request ended, and leaves so many tokens of KV cache.
    pub(super) fn end(&mut self, id: u64, left: u64, now: Instant) {
        match self.begun.iter().position(|begun| begun.id == id) {
            Some(at) => {
                self.begun.swap_remove(at);
            }
            None => self.ended.push(EndedRequest { ended: now, left }),
        }
    }

    /// Sequences at the engine, of which the heartbeat `counted` so many.
    pub(super) fn sequences(&self, counted: u64) -> u64 {
        (counted + self.begun.len() as u64).saturating_sub(self.ended.len() as u64)
    }

    /// Tokens of KV cache that are free beside those of the heartbeat; negative: fewer.
    pub(super) fn freed_tokens(&self) -> f64 {
        let left: f64 = self.ended.iter().map(|ended| ended.left as f64).sum();
        let needed: f64 = self.begun.iter().map(|begun| begun.needed as f64).sum();
        left - needed
    }
}
