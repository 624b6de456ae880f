//! The engine: which sequences run next and which token each gets.
//!
//! One thread owns the model and everything in this crate but the inbox, the counters and the handles. Other threads
//! use a [`Handle`]: requests go in through a bounded inbox, tokens come out through logs. The engine never waits for
//! a client, reads the clock only at the loop's head ([`spawn`]), and has no notion of text or HTTP.
//!
//! A [`Request`] is served on its [`Terms`]: class, account, clocks. An [`Observer`] is notified of the transitions of
//! all requests, a [`Follower`] of those of one, and [`Stats`] counts them.
//!
//! Read [`Engine::step`] first, then the policy in `scheduler/mod.rs`.

#![deny(clippy::match_bool)]

mod config;
mod disk_cache;
mod dry_breakers;
mod embedding;
mod engine;
mod fair_share;
pub mod fake;
mod handle;
mod idle_list;
mod inbox;
mod media;
mod pages;
mod plan;
mod prefix_index;
mod progress;
pub mod remote;
mod remote_record;
mod request;
mod request_state;
mod sampler;
mod scheduler;
mod sequence;
mod speculation;
mod states;
mod stats;
mod step_execution;
mod step_time;
mod terms;
mod validate;

pub use config::{
    CHOICES_MAX, ConfigError, DRY_BASE_MAX, DRY_MULTIPLIER_MAX, DRY_SEQUENCES_MAX, DRY_WINDOW_MAX,
    EOS_IDS_MAX, EngineConfig, LOGIT_BIAS_MAX, TOP_LOGPROBS_MAX, Tuning, WAIT_MAX,
};
pub use disk_cache::{DiskCacheConfig, DiskCacheError};
pub use dry_breakers::DryBreakers;
pub use embedding::{Embedding, Pooling};
pub use engine::{Engine, EnginePanicked, EngineThread, Next, StepReport, spawn};
pub use handle::Handle;
pub use media::{MEDIA_INPUTS_MAX, MediaInput};
pub use model::AdapterSet;
pub use model::adapters::{ADAPTER_SCALE_MAX, ADAPTERS_MAX, SEQUENCE_ADAPTERS_MAX};
pub use progress::{
    EndingToken, Follower, GivenProgress, Observer, ParkReason, Phase, Progress, StepFacts,
    Transition,
};
pub use request::{
    Choice, Constraint, INJECT_TOKENS_MAX, Rejected, Request, RequestUpdate, SamplingParams,
    StopCondition, Token, TopLogprob, UPDATES_MAX, UpdateRejected,
};
pub use speculation::{DRAFT_TOKENS_MAX, FORCED_TOKENS_MAX, MTP_TOKENS_MAX, Speculation};
pub use stats::{Endings, LATENCY_BOUNDS_NS, LATENCY_BUCKETS, LatencySnapshot, Stats};
pub use terms::{
    Account, CacheSalt, Clocks, PERMIT_KEPT, Policy, Priority, RequestId, SequencePermits, Terms,
    WEIGHT_MAX,
};
