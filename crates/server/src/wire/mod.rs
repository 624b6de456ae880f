//! Wire formats: bytes to values, and events to bytes.

pub(crate) mod anthropic;
pub(crate) mod clock;
pub(crate) mod codings;
pub(crate) mod cursor;
pub(crate) mod dialect;
pub(crate) mod edit_distance;
pub(crate) mod embeddings_input;
pub(crate) mod embeddings_vector;
pub(crate) mod field_table;
pub(crate) mod fields;
pub(crate) mod format;
pub(crate) mod frame_buffer;
pub(crate) mod framing;
pub(crate) mod json;
pub(crate) mod native;
pub(crate) mod ollama;
pub(crate) mod openai;
pub(crate) mod realtime_command;
pub(crate) mod realtime_frames;
pub(crate) mod response_format;
pub(crate) mod responses;
pub(crate) mod status;
pub(crate) mod thinking_request;
pub(crate) mod tool_definitions;
pub(crate) mod whole;
