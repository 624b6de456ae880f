//! Parts that several wire protocols have: fields of requests, messages and their parts, ends, errors, log-probabilities.
//!
//! A protocol's folder names items of this folder and of the modules below, and of no other protocol.

pub(crate) mod content_parts;
pub mod error_response;
pub(crate) mod event_parts;
pub mod finish_reason;
pub mod generation_fields;
pub(crate) mod images;
pub mod job_outcome;
pub mod keep_alive;
pub(crate) mod logprobs;
pub mod lora_field;
pub(crate) mod messages;
pub(crate) mod timings;
pub(crate) mod tool_calls;
pub(crate) mod vision_proxy;
