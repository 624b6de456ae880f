//! Inputs of a placement: the load of engines, and the request.

use crate::names::InstanceId;
use std::time::{Duration, Instant};

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
