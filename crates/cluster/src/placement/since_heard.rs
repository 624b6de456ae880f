//! Requests of this gateway at an engine, beside what the engine's last heartbeat has counted.

use std::time::{Duration, Instant};

/// A heartbeat counts the engine's requests a little before it arrives: of what began or ended at the gateway in this
/// time before the arrival, the heartbeat may know or not.
pub(super) const SETTLE: Duration = Duration::from_millis(50);
/// Ended requests that are remembered until the next heartbeat; further ones count as if the heartbeat knew them.
const ENDED_MAX: usize = 1 << 12;

/// Requests of this gateway, and those that began or ended since the last heartbeat.
///
/// Sequences are not added up from begun and ended ones: a request that began just before a heartbeat would count twice,
/// and one engine would look full where all requests begin at one time. The gateway knows its own requests exactly, and
/// takes from the heartbeat only how many there are of others.
#[derive(Debug, Default)]
pub(super) struct SinceHeard {
    heard: Option<Instant>,
    /// Own requests now.
    own: u64,
    /// Own requests that the last heartbeat may have counted.
    own_counted: u64,
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
    /// Tokens of KV cache that the request has left; 0: it began after the heartbeat, too.
    left: u64,
}

impl SinceHeard {
    /// A heartbeat arrived at this time; called with the same time again, nothing changes.
    pub(super) fn heard(&mut self, heard: Instant) {
        if self.heard == Some(heard) {
            return;
        }
        self.heard = Some(heard);
        let maybe_counted = self.ended.iter().filter(|e| e.ended + SETTLE >= heard);
        self.own_counted = self.own + maybe_counted.count() as u64;
        self.begun.retain(|begun| begun.placed + SETTLE > heard);
        self.ended.retain(|ended| ended.ended >= heard);
    }

    /// A request was placed that may need so many tokens of KV cache.
    pub(super) fn begin(&mut self, id: u64, needed: u64, now: Instant) {
        self.own += 1;
        self.begun.push(BegunRequest {
            id,
            placed: now,
            needed,
        });
    }

    /// A request ended, and leaves so many tokens of KV cache.
    pub(super) fn end(&mut self, id: u64, left: u64, now: Instant) {
        self.own = self.own.saturating_sub(1);
        let begun = self.begun.iter().position(|begun| begun.id == id);
        if let Some(at) = begun {
            self.begun.swap_remove(at);
        }
        if self.ended.len() < ENDED_MAX {
            let left = if begun.is_some() { 0 } else { left };
            self.ended.push(EndedRequest { ended: now, left });
        }
    }

    /// Sequences at the engine, of which the heartbeat `counted` so many.
    pub(super) fn sequences(&self, counted: u64) -> u64 {
        self.own + counted.saturating_sub(self.own_counted)
    }

    /// Tokens of KV cache that are free beside those of the heartbeat; negative: fewer.
    pub(super) fn freed_tokens(&self) -> f64 {
        let left: f64 = self.ended.iter().map(|ended| ended.left as f64).sum();
        let needed: f64 = self.begun.iter().map(|begun| begun.needed as f64).sum();
        left - needed
    }
}
