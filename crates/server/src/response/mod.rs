//! Responses: streaming, non-streaming and deferred ones, keep-alives, and error responses.

pub(crate) mod collected_response;
pub(crate) mod deferred_response;
pub(crate) mod error_response;
mod event_writer;
pub(crate) mod keep_alive;
pub(crate) mod stream_body;
pub(crate) mod stream_response;
