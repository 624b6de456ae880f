//! Admission, API keys, streams and models.

pub(crate) mod admission;
pub(crate) mod following;
pub(crate) mod generation;
pub(crate) mod handles;
pub(crate) mod id_generator;
pub(crate) mod job_names;
pub(crate) mod keys;
pub(crate) mod launch;
pub(crate) mod lifecycle;
pub(crate) mod lifetime_stats;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod offload;
pub(crate) mod open;
pub(crate) mod pace;
pub(crate) mod pending_generation;
pub(crate) mod response_limits;
pub(crate) mod response_record;
pub(crate) mod response_store;
pub(crate) mod served;
pub(crate) mod stream_clocks;
pub(crate) mod streams;
pub(crate) mod submit;
pub(crate) mod workflows;
