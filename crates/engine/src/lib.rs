//! Who runs next and which token.
//!
//! One thread owns the model and everything in this crate but the inbox, the counters and the
//! handles. Others reach it through a [`Handle`]: a bounded inbox in, token logs out. The
//! engine never waits for a client, never reads a clock below the loop's head ([`spawn`]), and
//! knows neither text nor HTTP.
//!
//! A [`Request`] says on which [`Terms`] it is served: its class, its account, its clocks. What
//! happens to it can be watched by an [`Observer`] or, alone, by a [`Follower`], and is counted in
//! [`Stats`].
//!
//! Read [`Engine::step`] first, then the policy in `scheduler/mod.rs`.

mod accounts;
mod age;
mod config;
mod embedding;
mod engine;
pub mod fake;
mod handle;
mod inbox;
mod latency;
mod observer;
mod pace;
mod pages;
mod places;
mod plan;
mod prefix;
mod progress;
mod request;
mod request_id;
mod sampler;
mod scheduler;
mod sequence;
mod spawn;
mod speculation;
mod stats;
mod steer;
mod submitted;
mod terms;
mod tuning;
mod turn;
mod validate;

pub use config::{
    CHOICES_MAX, ConfigError, EOS_IDS_MAX, EngineConfig, LOGIT_BIAS_MAX, LOOK_EACH,
    TOP_LOGPROBS_MAX,
};
pub use embedding::{Embedding, Pooling};
pub use engine::{Engine, Next, StepReport};
pub use handle::Handle;
pub use latency::{LATENCY_BOUNDS_NS, LATENCY_BUCKETS, LatencySnapshot};
pub use observer::{Follower, Observer, StepFacts, Transition, Why};
pub use places::{PLACE_KEPT, Places};
pub use progress::{Phase, Progress};
pub use request::{
    Choice, Constraint, Rejected, Request, Sampling, Terminator, Token, TopLogprob,
};
pub use request_id::RequestId;
pub use spawn::{EnginePanicked, Joiner, spawn};
pub use speculation::{DRAFT_TOKENS_MAX, FORCED_TOKENS_MAX, Speculation};
pub use stats::{Endings, Stats};
pub use steer::{STEER_TOKENS_MAX, STEERS_MAX, Steer, Unsteered};
pub use terms::{Account, CacheSalt, Class, Clocks, Policy, Terms, WEIGHT_MAX};
pub use tuning::Tuning;
