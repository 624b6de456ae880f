//! The state of one engine beyond its heartbeat: its prefix cache, its rates, the placements since, and the requests of
//! this gateway that the last heartbeat has not counted.

use super::EngineLoad;
use super::prefix_cache::PrefixCache;
use std::time::{Duration, Instant};

/// Prompt tokens per second of an engine that was never measured.
const PREFILL_TOKENS_PER_S: f64 = 1000.0;
/// Time in a slot after the first token where no request ended yet, seconds.
const SERVICE_S: f64 = 5.0;
/// Weight of a new sample in a mean.
const WEIGHT: f64 = 0.1;
/// Shorter prefills measure steps rather than the rate.
const MEASURED_TOKENS_MIN: u64 = 64;

/// An engine as this gateway sees it.
#[derive(Debug, Default)]
pub(super) struct TrackedEngine {
    pub(super) cache: PrefixCache,
    /// As of the last heartbeat.
    pub(super) cache_epoch: u64,
    /// Requests of this gateway without a first token, in order of their placement.
    pub(super) waiting: Vec<WaitingRequest>,
    /// Requests that began or ended since the last heartbeat.
    pub(super) since_heard: SinceHeard,
    /// Mean seconds per prompt token, from own requests.
    seconds_per_token: Option<f64>,
    /// Mean seconds from the first token to the end, from own requests.
    service_s: Option<f64>,
}

/// A request that was placed and has no first token.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRequest {
    pub(super) id: u64,
    pub(super) placed: Instant,
    /// Prompt tokens that the engine has to compute.
    pub(super) uncached: u64,
    /// Prompt tokens that the engine computes before these, as of the placement.
    pub(super) ahead: u64,
}

/// A time to first token as it is predicted, and its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    pub(super) seconds: f64,
    /// Prompt tokens to compute for other requests before.
    pub(super) ahead: u64,
    /// Sequences beside this one.
    pub(super) sequences: u64,
}

impl TrackedEngine {
    /// Time to first token of a request with `uncached` prompt tokens to compute, that may need `needed` tokens of the
    /// KV cache.
    pub(super) fn predict(
        &self,
        load: &EngineLoad,
        uncached: u64,
        needed: u64,
        now: Instant,
    ) -> Prediction {
        let unseen = || {
            let since = |w: &&WaitingRequest| w.placed + SETTLE > load.heard;
            self.waiting.iter().filter(since)
        };
        let counted = u64::from(load.running) + u64::from(load.queued);
        let sequences = self.since_heard.sequences(counted);
        let free = load.free_tokens as f64 + self.since_heard.freed_tokens();
        let per_token = self.seconds_per_token(load);
        let ahead = match load.prefill_pending {
            Some(pending) => {
                let age = now.saturating_duration_since(load.heard).as_secs_f64();
                let placed: u64 = unseen().map(|w| w.uncached).sum();
                (pending + placed).saturating_sub((age / per_token) as u64)
            }
            None => self.waiting.iter().map(|w| w.uncached).sum(),
        };
        let wait = (ahead as f64 * per_token)
            .max(self.slot_wait(load, sequences))
            .max(self.page_wait(load, needed as f64 - free));
        let step = load.step.as_secs_f64();
        Prediction {
            // Half of the step that runs now, and the step of the first token.
            seconds: wait + uncached as f64 * per_token + 1.5 * step,
            ahead,
            sequences,
        }
    }

    /// Until a slot is free, with this many sequences before.
    fn slot_wait(&self, load: &EngineLoad, sequences: u64) -> f64 {
        let slots = u64::from(load.slots);
        if slots == 0 || sequences < slots {
            return 0.0;
        }
        (sequences + 1 - slots) as f64 * self.service_s() / slots as f64
    }

    /// Until `missing` tokens of KV cache are free.
    fn page_wait(&self, load: &EngineLoad, missing: f64) -> f64 {
        let used = load.cache_tokens.saturating_sub(load.free_tokens) as f64;
        if load.cache_tokens == 0 || missing <= 0.0 {
            return 0.0;
        }
        missing * self.service_s() / used.max(1.0)
    }

    fn service_s(&self) -> f64 {
        self.service_s.unwrap_or(SERVICE_S)
    }

    fn seconds_per_token(&self, load: &EngineLoad) -> f64 {
        let reported = load.prefill_tokens_per_s.filter(|&rate| rate > 0.0);
        reported
            .map(|rate| 1.0 / rate)
            .or(self.seconds_per_token)
            .unwrap_or(1.0 / PREFILL_TOKENS_PER_S)
    }

    /// Removes a request from those that wait.
    pub(super) fn take_waiting(&mut self, id: u64) -> Option<WaitingRequest> {
        let at = self.waiting.iter().position(|w| w.id == id)?;
        Some(self.waiting.remove(at))
    }

    /// A request got its first token, after `uncached` of its own prompt tokens were computed.
    pub(super) fn measure_prefill(
        &mut self,
        waiting: &WaitingRequest,
        uncached: u64,
        now: Instant,
    ) {
        let tokens = waiting.ahead + uncached;
        if tokens >= MEASURED_TOKENS_MIN {
            let took = now.saturating_duration_since(waiting.placed).as_secs_f64();
            update_mean(&mut self.seconds_per_token, took / tokens as f64);
        }
    }

    /// A request ended this long after its first token.
    pub(super) fn measure_service(&mut self, took: Duration) {
        update_mean(&mut self.service_s, took.as_secs_f64());
    }
}

fn update_mean(mean: &mut Option<f64>, sample: f64) {
    *mean = Some(mean.map_or(sample, |mean| mean + WEIGHT * (sample - mean)));
}

/// A heartbeat counts the engine's requests a little before it arrives: of what began or ended at the gateway in this
/// time before the arrival, the heartbeat may know or not.
pub(super) const SETTLE: Duration = Duration::from_millis(50);
/// Ended requests that are remembered until the next heartbeat; further ones count as if the heartbeat knew them.
const ENDED_MAX: usize = 1 << 12;

/// Requests of this gateway, and those that began or ended since the last heartbeat.
///
/// Sequences are not added up from begun and ended ones: a request that began just before a heartbeat would count twice,
/// and one engine would look full where all requests begin at one time. The gateway knows its own requests exactly, and
/// takes from the heartbeat only the number of other gateways' requests.
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

    /// Tokens of KV cache that are free in addition to those of the heartbeat; negative: fewer.
    pub(super) fn freed_tokens(&self) -> f64 {
        let left: f64 = self.ended.iter().map(|ended| ended.left as f64).sum();
        let needed: f64 = self.begun.iter().map(|begun| begun.needed as f64).sum();
        left - needed
    }
}
