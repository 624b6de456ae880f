//! llama.cpp's own API: `/completion`, which continues a prompt, and `/infill`, which fills a gap between two texts.
//!
//! A stream is a sequence of objects: those with `"stop": false` have text, and the one with `"stop": true` has none,
//! and what is known at the end. Nothing follows it.

pub(crate) mod completion_request;
pub(crate) mod infill_request;
pub mod result_encoder;
pub mod seen_prompt;
