//! Placement: which engine gets a request.
//!
//! A request goes where its first token is predicted soonest:
//!
//! ```text
//! wait   = max(prompt tokens ahead / prefill rate, wait for a slot, wait for pages)
//! ttft   = wait + (prompt - cached prefix) / prefill rate + 1.5 steps
//! ```
//!
//! Queue, pages and step come from the engine's heartbeat. The gateway counts its own requests, and takes from the heartbeat
//! how many others have there, so that requests between two heartbeats do not all meet at one engine. Which prefix an
//! engine has cached is learned from own placements and corrected by what the engine reports with the first token;
//! nothing about it is exchanged.
//! Engines that are predicted about equally soon are ordered by a hash of the prompt's first block and the engine:
//! several gateways that have seen nothing choose the same engine for the same system prompt, and different engines for
//! different ones.
//!
//! Everything here is computed from arguments; there is no clock and no I/O.
//!
//! ```text
//! prefix_cache    hashes of a prompt's blocks, and blocks that one engine probably has
//! tracked_engine  prediction and measured rates of one engine, and own requests that its heartbeat has not counted
//! ```

#[cfg(test)]
mod count_tests;
mod prefix_cache;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod tracked_engine;

pub(crate) use prefix_cache::mix;

use crate::names::InstanceId;
use prefix_cache::{PrefixCache, PrefixChain};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tracked_engine::{Prediction, TrackedEngine, WaitingRequest};

/// Predictions that differ by less than this share of the sooner one, plus one step, count as equal.
const EQUAL_SHARE: f64 = 0.05;

/// Rule by which one of several engines gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementPolicy {
    /// Where the first token is predicted soonest.
    #[default]
    Predicted,
    /// Where the fewest requests are, as the heartbeat said and by own placements since.
    LeastLoaded,
    /// One engine after the other.
    RoundRobin,
}

/// Rule, bounds and sizes of a [`Placement`].
#[derive(Clone, Copy, Debug)]
pub struct PlacementConfig {
    /// Rule.
    pub policy: PlacementPolicy,
    /// Tokens in a block of the prefix index.
    pub block_tokens: usize,
    /// Blocks in the indexes of all engines together (about 64 bytes each).
    pub blocks_max: usize,
    /// Blocks of one prompt that are indexed (8 bytes each until the request ends); later ones count as not cached.
    pub prompt_blocks_max: usize,
    /// Engines with an index; others are placed on without one.
    pub engines_max: usize,
    /// Requests between [`Placement::placed`] and [`Placement::ended`]; further ones are placed, and not measured.
    pub requests_max: usize,
}

impl Default for PlacementConfig {
    fn default() -> Self {
        Self {
            policy: PlacementPolicy::default(),
            block_tokens: 32,
            blocks_max: 1 << 18,
            prompt_blocks_max: 1 << 12,
            engines_max: 256,
            requests_max: 1 << 14,
        }
    }
}

/// Places requests on engines. Learns from their first tokens and ends.
#[derive(Debug)]
pub struct Placement {
    config: PlacementConfig,
    engines: BTreeMap<InstanceId, TrackedEngine>,
    requests: HashMap<u64, PlacedRequest>,
    turns: Turns,
}

/// A request between its placement and its end.
#[derive(Debug)]
struct PlacedRequest {
    engine: InstanceId,
    prompt_tokens: u64,
    /// After the prompt.
    chain: PrefixChain,
    /// Blocks of the prompt.
    blocks: Vec<u64>,
    /// Blocks of the prompt that the index had before.
    known: usize,
    /// Blocks that the engine's index may have.
    limit: usize,
    first_token: Option<Instant>,
}

impl Placement {
    /// A placement without knowledge.
    pub fn new(config: PlacementConfig) -> Self {
        Self {
            config,
            engines: BTreeMap::new(),
            requests: HashMap::new(),
            turns: Turns::default(),
        }
    }

    /// The engine that the policy names. `engines` serve the request's model; of these none is chosen that the request
    /// excludes. `None`: no engine is left.
    pub fn choose(
        &mut self,
        engines: &[EngineLoad],
        request: &PlacementRequest<'_>,
        now: Instant,
    ) -> Option<InstanceId> {
        self.track(engines);
        let (_, blocks) = self.blocks_of(request);
        let candidates = engines
            .iter()
            .filter(|load| !request.excluded.contains(&load.id))
            .map(|load| {
                let (prediction, uncached) = self.predict(load, request, &blocks, now);
                Candidate {
                    load,
                    prediction,
                    uncached,
                }
            });
        let candidates: Vec<_> = candidates.collect();
        let family = blocks.first().copied().unwrap_or(mix(request.model));
        self.turns.choose(self.config.policy, &candidates, family)
    }

    /// The request `id` was sent to `engine`.
    pub fn placed(
        &mut self,
        id: u64,
        engine: &EngineLoad,
        request: &PlacementRequest<'_>,
        now: Instant,
    ) {
        self.track(std::slice::from_ref(engine));
        let (chain, blocks) = self.blocks_of(request);
        let (prediction, uncached) = self.predict(engine, request, &blocks, now);
        let limit = self.blocks_limit(engine);
        let Some(tracked) = self.engines.get_mut(&engine.id) else {
            return;
        };
        let known = tracked.cache.matched(&blocks);
        tracked.cache.touch(&blocks, limit);
        if self.requests.len() >= self.config.requests_max {
            return;
        }
        tracked.waiting.push(WaitingRequest {
            id,
            placed: now,
            uncached,
            ahead: prediction.ahead,
        });
        let needed = needed_tokens(request, uncached);
        tracked.since_heard.begin(id, needed, now);
        let request = PlacedRequest {
            engine: engine.id,
            prompt_tokens: request.prompt.len() as u64,
            chain,
            blocks,
            known,
            limit,
            first_token: None,
        };
        self.requests.insert(id, request);
    }

    /// The first token of a request was generated, after the engine had found `cached_tokens` of the prompt.
    pub fn first_token(&mut self, id: u64, cached_tokens: u64, now: Instant) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let Some(tracked) = self.engines.get_mut(&request.engine) else {
            return;
        };
        let Some(waiting) = tracked.take_waiting(id) else {
            return;
        };
        request.first_token = Some(now);
        let uncached = request.prompt_tokens.saturating_sub(cached_tokens);
        tracked.measure_prefill(&waiting, uncached, now);
        let expected = (request.known * self.config.block_tokens) as u64;
        if cached_tokens + (self.config.block_tokens as u64) < expected {
            // The engine evicted sooner than the index.
            let fewer = tracked.cache.len() - tracked.cache.len() / 10;
            tracked.cache.trim(fewer);
            tracked.cache.touch(&request.blocks, request.limit);
        }
    }

    /// A request ended, was rejected or taken away. `generated` are the tokens that follow the prompt in the engine's
    /// cache, as far as known.
    pub fn ended(&mut self, id: u64, generated: &[u32], now: Instant) {
        let Some(mut request) = self.requests.remove(&id) else {
            return;
        };
        let Some(tracked) = self.engines.get_mut(&request.engine) else {
            return;
        };
        tracked.take_waiting(id);
        let left = request.prompt_tokens + generated.len() as u64;
        tracked.since_heard.end(id, left, now);
        let Some(first_token) = request.first_token else {
            // The engine may not have computed the prompt.
            return tracked.cache.forget(&request.blocks[request.known..]);
        };
        tracked.measure_service(now.saturating_duration_since(first_token));
        let blocks_max = self.config.prompt_blocks_max;
        let mut blocks = std::mem::take(&mut request.blocks);
        request.chain.append(generated, &mut blocks, blocks_max);
        tracked.cache.touch(&blocks, request.limit);
    }

    /// Forgets an engine that is gone, and its requests.
    pub fn engine_gone(&mut self, engine: InstanceId) {
        self.engines.remove(&engine);
        self.requests.retain(|_, request| request.engine != engine);
    }

    /// Blocks in the indexes of all engines.
    pub fn blocks(&self) -> usize {
        self.engines.values().map(|engine| engine.cache.len()).sum()
    }

    fn predict(
        &self,
        load: &EngineLoad,
        request: &PlacementRequest<'_>,
        blocks: &[u64],
        now: Instant,
    ) -> (Prediction, u64) {
        let untracked = TrackedEngine::default();
        let tracked = self.engines.get(&load.id).unwrap_or(&untracked);
        let cached = tracked.cache.matched(blocks) * self.config.block_tokens;
        let uncached = (request.prompt.len() as u64).saturating_sub(cached as u64);
        let needed = needed_tokens(request, uncached);
        (tracked.predict(load, uncached, needed, now), uncached)
    }

    /// Begins to track new engines, and forgets caches that were cleared.
    fn track(&mut self, engines: &[EngineLoad]) {
        let mut grew = false;
        for load in engines {
            if !self.engines.contains_key(&load.id) {
                if self.engines.len() >= self.config.engines_max {
                    continue;
                }
                grew = true;
            }
            let tracked = self.engines.entry(load.id).or_default();
            tracked.since_heard.heard(load.heard);
            if tracked.cache_epoch != load.cache_epoch {
                tracked.cache_epoch = load.cache_epoch;
                tracked.cache = PrefixCache::default();
            }
        }
        if grew {
            let limit = self.config.blocks_max / self.engines.len();
            for tracked in self.engines.values_mut() {
                tracked.cache.trim(limit);
            }
        }
    }

    /// Blocks that the index of one engine may have.
    fn blocks_limit(&self, load: &EngineLoad) -> usize {
        let share = self.config.blocks_max / self.engines.len().max(1);
        match load.cache_tokens {
            0 => share,
            tokens => share.min(tokens as usize / self.config.block_tokens.max(1)),
        }
    }

    fn blocks_of(&self, request: &PlacementRequest<'_>) -> (PrefixChain, Vec<u64>) {
        let PlacementConfig { block_tokens, .. } = self.config;
        let mut chain = PrefixChain::new(request.model, request.salt, block_tokens);
        let mut blocks = Vec::new();
        chain.append(request.prompt, &mut blocks, self.config.prompt_blocks_max);
        (chain, blocks)
    }
}

/// Tokens of KV cache that a request may need beside what is cached.
fn needed_tokens(request: &PlacementRequest<'_>, uncached: u64) -> u64 {
    uncached.saturating_add(request.max_tokens)
}

/// The load of one engine, as of its last heartbeat.
#[derive(Clone, Debug)]
pub struct EngineLoad {
    /// The engine.
    pub id: InstanceId,
    /// Arrival of the heartbeat.
    pub heard: Instant,
    /// Changes when the engine's prefix cache was cleared.
    pub cache_epoch: u64,
    /// Tokens that the KV cache holds; 0: unknown.
    pub cache_tokens: u64,
    /// Tokens of pages without a sequence, with or without content.
    pub free_tokens: u64,
    /// Sequences that can run at one time; 0: unknown.
    pub slots: u32,
    /// Requests without a slot.
    pub queued: u32,
    /// Sequences with a slot.
    pub running: u32,
    /// Prompt tokens that the engine has still to compute, if the heartbeat has that.
    pub prefill_pending: Option<u64>,
    /// Prompt tokens computed per second, if the engine measured it.
    pub prefill_tokens_per_s: Option<f64>,
    /// Duration of a step.
    pub step: Duration,
}

/// The part of a request that a placement depends on.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// Identifies the model's content.
    pub model: u64,
    /// Requests with different salts share no cached prefix.
    pub salt: u64,
    /// The prompt, and the tokens so far of a request that continues.
    pub prompt: &'a [u32],
    /// Tokens that may be generated.
    pub max_tokens: u64,
    /// Engines that rejected this request or died with it.
    pub excluded: &'a [InstanceId],
}

/// An engine that may get a request.
struct Candidate<'a> {
    load: &'a EngineLoad,
    prediction: Prediction,
    /// Prompt tokens that the engine probably has to compute.
    uncached: u64,
}

/// The choices of one gateway so far.
#[derive(Debug, Default)]
struct Turns {
    count: u64,
    last: Option<InstanceId>,
}

impl Turns {
    /// One of the candidates; `family` names the prompt's first block. `None`: there are no candidates.
    fn choose(
        &mut self,
        policy: PlacementPolicy,
        candidates: &[Candidate<'_>],
        family: u64,
    ) -> Option<InstanceId> {
        let chosen = match policy {
            PlacementPolicy::Predicted => soonest(candidates, family),
            PlacementPolicy::LeastLoaded => fewest_sequences(candidates, self.count),
            PlacementPolicy::RoundRobin => next_in_turn(candidates, self.last),
        }?;
        self.count += 1;
        self.last = Some(chosen);
        Some(chosen)
    }
}

/// The engine with the soonest first token. Of those that are about equal, the one that computes the least, then the one
/// with the fewest sequences.
fn soonest(candidates: &[Candidate<'_>], family: u64) -> Option<InstanceId> {
    let seconds = candidates.iter().map(|one| one.prediction.seconds);
    let soonest = seconds.min_by(f64::total_cmp)?;
    let about_equal = candidates.iter().filter(|one| {
        let step = one.load.step.as_secs_f64();
        one.prediction.seconds <= soonest * (1.0 + EQUAL_SHARE) + step
    });
    let chosen = about_equal.min_by_key(|one| {
        let sequences = one.prediction.sequences;
        (one.uncached, sequences, mix(family ^ one.load.id.0))
    });
    chosen.map(|one| one.load.id)
}

/// The engine with the fewest requests, own ones since the heartbeat included; equal ones in an order that changes.
fn fewest_sequences(candidates: &[Candidate<'_>], turn: u64) -> Option<InstanceId> {
    let order = |one: &&Candidate<'_>| (one.prediction.sequences, mix(turn ^ mix(one.load.id.0)));
    candidates.iter().min_by_key(order).map(|one| one.load.id)
}

/// The engine whose id follows that of the last choice.
fn next_in_turn(candidates: &[Candidate<'_>], last: Option<InstanceId>) -> Option<InstanceId> {
    let ids = candidates.iter().map(|one| one.load.id);
    let following = ids.clone().filter(|id| last.is_some_and(|last| *id > last));
    following.min().or_else(|| ids.min())
}
