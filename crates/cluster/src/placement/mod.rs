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
//! load            what the caller passes: loads of engines, the request
//! prefix_chain    hashes of a prompt's blocks
//! prefix_cache    blocks that one engine probably has
//! since_heard     own requests at an engine, beside those that its heartbeat has counted
//! tracked_engine  prediction and measured rates of one engine
//! policy          the rule above, and the usual ones beside it
//! ```

#[cfg(test)]
mod count_tests;
mod load;
mod policy;
mod prefix_cache;
mod prefix_chain;
#[cfg(test)]
mod simulation;
mod since_heard;
#[cfg(test)]
mod tests;
mod tracked_engine;

pub use load::{EngineLoad, PlacementRequest};
pub(crate) use prefix_chain::mix;

use crate::names::InstanceId;
use policy::{Candidate, Turns};
use prefix_cache::PrefixCache;
use prefix_chain::PrefixChain;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
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
