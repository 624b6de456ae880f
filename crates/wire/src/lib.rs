//! Wire protocols: bytes to values, and events to bytes.

pub mod ai_sdk;
pub mod anthropic;
pub(crate) mod base64;
pub mod clock;
pub mod control_request;
pub mod cursor;
pub mod derived_model;
pub mod durable_streams;
pub mod embeddings_input;
pub mod embeddings_request;
pub mod encoder;
pub mod field_table;
pub mod fields;
pub mod framing;
pub mod item_page;
pub mod jobs;
pub mod json;
pub mod llama_cpp;
pub mod ollama;
pub mod openai;
pub mod protocol;
pub mod realtime_command;
pub mod realtime_encoder;
pub mod request_body;
pub mod request_parser;
pub mod request_schema;
pub mod rerank_request;
pub(crate) mod response_format;
pub mod responses;
pub mod schema;
pub mod shared;
pub mod stored_request;
pub mod tool_definitions;
pub mod vocabulary_request;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: testing::heap::CountingAllocator = testing::heap::CountingAllocator;
