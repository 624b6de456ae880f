//! llama.cpp's own API: `/infill`, which fills a gap between two texts.
//!
//! A stream is a sequence of objects: those with `"stop": false` have text, and the one with `"stop": true` has none,
//! and what is known at the end. Nothing follows it.

pub(crate) mod infill_encoder;
pub(crate) mod infill_object;
pub(crate) mod infill_request;
