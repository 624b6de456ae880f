//! Wire protocols: bytes to values, and events to bytes.

#![deny(clippy::match_bool)]

pub mod ai_sdk;
pub mod anthropic;
pub(crate) mod base64;
pub mod clock;
pub mod codings;
pub mod control_request;
pub mod cursor;
pub mod derived_model;
pub mod durable_streams;
pub mod edit_distance;
pub mod embeddings_input;
pub mod embeddings_request;
pub mod embeddings_vector;
pub mod encoder;
pub mod event_id;
pub mod field_table;
pub mod fields;
pub mod frame_writer;
pub mod framing;
pub mod item_page;
pub mod jobs;
pub mod json;
pub mod llama_cpp;
pub mod metadata;
pub mod model_card;
pub mod model_defaults;
pub mod ollama;
pub mod openai;
pub mod protocol;
pub mod query;
pub mod realtime_command;
pub mod realtime_encoder;
pub mod reasoning_request_fields;
pub mod request_body;
pub mod request_parser;
pub mod request_schema;
pub mod rerank_request;
pub(crate) mod response_format;
pub mod responses;
pub mod rfc3339;
pub mod schema;
pub mod shared;
pub mod sse;
pub mod status;
pub mod stored_request;
pub mod tool_definitions;
pub mod vocabulary_request;
pub mod workflow_request;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: testing::heap::CountingAllocator = testing::heap::CountingAllocator;
