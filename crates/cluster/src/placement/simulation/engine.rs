//! One engine: a queue, slots, chunked prefill, steps whose time grows with their rows, and a prefix cache.

use super::super::EngineLoad;
use super::super::prefix_cache::{PrefixCache, PrefixChain};
use crate::names::InstanceId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const PAGE_TOKENS: usize = 16;
/// Tokens that the KV cache holds.
const CACHE_TOKENS: u64 = 120_000;
const SLOTS: usize = 24;
/// Prompt tokens in one step.
const CHUNK: u64 = 256;
const STEP_US: u64 = 8_000;
const DECODE_ROW_US: u64 = 500;
const PREFILL_ROW_US: u64 = 300;

/// A request at an engine.
pub(super) struct Work {
    pub(super) conversation: usize,
    pub(super) arrived_us: u64,
    pub(super) prompt: Vec<u32>,
    pub(super) answer: Vec<u32>,
}

struct Running {
    work: Work,
    /// Prompt tokens to compute.
    prefill: u64,
    /// Found in the cache at the start.
    cached: u64,
    generated: usize,
}

/// What became of a request in a step.
pub(super) enum Outcome {
    FirstToken {
        work: usize,
        arrived_us: u64,
        cached: u64,
        prompt: u64,
    },
    Ended {
        work: usize,
        answer: Vec<u32>,
    },
}

pub(super) struct SimulatedEngine {
    id: u64,
    /// Times are multiplied by this, in tenths.
    slowness: u64,
    queue: VecDeque<Work>,
    running: Vec<Running>,
    cache: PrefixCache,
    rate: f64,
    step_us: u64,
}

impl SimulatedEngine {
    pub(super) fn new(id: u64, slowness: u64) -> Self {
        Self {
            id,
            slowness,
            queue: VecDeque::new(),
            running: Vec::new(),
            cache: PrefixCache::default(),
            rate: 10_000_000.0 / (PREFILL_ROW_US * slowness) as f64,
            step_us: STEP_US * slowness / 10,
        }
    }

    pub(super) fn submit(&mut self, work: Work) {
        self.queue.push_back(work);
    }

    /// Tokens of sequences that run.
    fn held(&self) -> u64 {
        let tokens = |r: &Running| (r.work.prompt.len() + r.work.answer.len()) as u64;
        self.running.iter().map(tokens).sum()
    }

    /// Starts requests, and begins a step; its duration in microseconds, or `None` without work.
    pub(super) fn begin_step(&mut self) -> Option<u64> {
        while self.running.len() < SLOTS {
            let Some(next) = self.queue.front() else {
                break;
            };
            let needed = (next.prompt.len() + next.answer.len()) as u64;
            if !self.running.is_empty() && self.held() + needed > CACHE_TOKENS {
                break;
            }
            let Some(work) = self.queue.pop_front() else {
                break;
            };
            let blocks = blocks(&work.prompt);
            let found = self.cache.matched(&blocks) * PAGE_TOKENS;
            let cached = found.min(work.prompt.len() - 1) as u64;
            self.cache.touch(&blocks[..found / PAGE_TOKENS], usize::MAX);
            self.running.push(Running {
                prefill: work.prompt.len() as u64 - cached,
                cached,
                generated: 0,
                work,
            });
        }
        if self.running.is_empty() {
            return None;
        }
        let (prefill, decode) = self.rows();
        let us = STEP_US + prefill * PREFILL_ROW_US + decode * DECODE_ROW_US;
        self.step_us = us * self.slowness / 10;
        if prefill > 0 {
            let rate = prefill as f64 * 1e6 / self.step_us as f64;
            self.rate += 0.1 * (rate - self.rate);
        }
        Some(self.step_us)
    }

    fn rows(&self) -> (u64, u64) {
        let prefill: u64 = self.running.iter().map(|r| r.prefill).sum();
        let decode = self.running.iter().filter(|r| r.prefill == 0).count();
        (prefill.min(CHUNK), decode as u64)
    }

    pub(super) fn end_step(&mut self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut chunk = CHUNK;
        for running in &mut self.running {
            if running.prefill == 0 {
                running.generated += 1;
                continue;
            }
            let rows = running.prefill.min(chunk);
            chunk -= rows;
            running.prefill -= rows;
            if rows > 0 && running.prefill == 0 {
                running.generated = 1;
                self.cache.touch(&blocks(&running.work.prompt), usize::MAX);
                outcomes.push(Outcome::FirstToken {
                    work: running.work.conversation,
                    arrived_us: running.work.arrived_us,
                    cached: running.cached,
                    prompt: running.work.prompt.len() as u64,
                });
            }
        }
        let is_over = |r: &mut Running| r.generated >= r.work.answer.len();
        let ended: Vec<_> = self.running.extract_if(.., is_over).collect();
        for Running { work, .. } in ended {
            let all = [&work.prompt[..], &work.answer].concat();
            self.cache.touch(&blocks(&all), usize::MAX);
            outcomes.push(Outcome::Ended {
                work: work.conversation,
                answer: work.answer,
            });
        }
        let idle = CACHE_TOKENS.saturating_sub(self.held());
        self.cache.trim(idle as usize / PAGE_TOKENS);
        outcomes
    }

    /// The heartbeat.
    pub(super) fn load(&self, heard: Instant) -> EngineLoad {
        let queued: usize = self.queue.iter().map(|w| w.prompt.len()).sum();
        let started: u64 = self.running.iter().map(|r| r.prefill).sum();
        EngineLoad {
            id: InstanceId(self.id),
            heard,
            cache_epoch: 0,
            cache_tokens: CACHE_TOKENS,
            free_tokens: CACHE_TOKENS.saturating_sub(self.held()),
            slots: SLOTS as u32,
            queued: self.queue.len() as u32,
            running: self.running.len() as u32,
            prefill_pending: Some(queued as u64 + started),
            prefill_tokens_per_s: Some(self.rate),
            step: Duration::from_micros(self.step_us),
        }
    }
}

fn blocks(tokens: &[u32]) -> Vec<u64> {
    let mut blocks = Vec::new();
    PrefixChain::new(0, 0, PAGE_TOKENS).append(tokens, &mut blocks, usize::MAX);
    blocks
}
