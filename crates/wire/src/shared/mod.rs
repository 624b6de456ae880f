//! Parts that several wire protocols have: fields of requests, messages and their parts, ends, errors, log-probabilities.
//!
//! A protocol's folder names items of this folder and of the modules below, and of no other protocol.

pub(crate) mod content_parts;
pub(crate) mod custom_calls;
mod dry_xtc_fields;
pub mod error_response;
pub(crate) mod event_parts;
pub mod finish_reason;
pub mod generation_fields;
pub mod job_error;
pub mod job_id;
pub mod job_outcome;
pub mod keep_alive;
pub(crate) mod llama_options;
pub(crate) mod logprobs;
pub mod lora_field;
pub(crate) mod messages;
pub(crate) mod result_text;
pub(crate) mod text_files;
pub(crate) mod timings;
pub(crate) mod token_ids;
pub(crate) mod tool_calls;
