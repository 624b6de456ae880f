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

mod config;
mod device_loss;
mod disk_cache;
mod dry_breakers;
mod embedding;
mod engine;
mod fair_share;
pub mod fake;
mod handle;
mod idle_list;
mod inbox;
mod latency;
mod long_steps;
mod observer;
mod pages;
mod plan;
mod prefix_index;
mod progress;
pub mod remote;
mod request;
mod request_id;
mod request_state;
mod sampler;
mod scheduler;
mod sequence;
mod sequence_permits;
mod spawn;
mod speculation;
mod states;
mod stats;
mod step_clock;
mod step_execution;
mod step_time;
mod submitted_request;
mod terms;
mod tuning;
mod validate;

pub use config::{
    CHOICES_MAX, ConfigError, DRY_BASE_MAX, DRY_MULTIPLIER_MAX, DRY_SEQUENCES_MAX, DRY_WINDOW_MAX,
    EOS_IDS_MAX, EngineConfig, LOGIT_BIAS_MAX, TOP_LOGPROBS_MAX, WAIT_MAX,
};
pub use disk_cache::{DiskCacheConfig, DiskCacheError};
pub use dry_breakers::DryBreakers;
pub use embedding::{Embedding, Pooling};
pub use engine::{Engine, Next, StepReport};
pub use handle::Handle;
pub use latency::{LATENCY_BOUNDS_NS, LATENCY_BUCKETS, LatencySnapshot};
pub use model::AdapterSet;
pub use model::adapters::{ADAPTER_SCALE_MAX, ADAPTERS_MAX, SEQUENCE_ADAPTERS_MAX};
pub use observer::{Follower, Observer, ParkReason, StepFacts, Transition};
pub use progress::{EndingToken, GivenProgress, Phase, Progress};
pub use request::{
    Choice, Constraint, INJECT_TOKENS_MAX, Rejected, Request, RequestUpdate, SamplingParams,
    StopCondition, Token, TopLogprob, UPDATES_MAX, UpdateRejected,
};
pub use request_id::RequestId;
pub use sequence_permits::{PERMIT_KEPT, SequencePermits};
pub use spawn::{EnginePanicked, EngineThread, spawn};
pub use speculation::{DRAFT_TOKENS_MAX, FORCED_TOKENS_MAX, MTP_TOKENS_MAX, Speculation};
pub use stats::{Endings, Stats};
pub use terms::{Account, CacheSalt, Clocks, Policy, Priority, Terms, WEIGHT_MAX};
pub use tuning::Tuning;
