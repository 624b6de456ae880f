//! OpenAI's Responses API: `/v1/responses*`.
//!
//! A streamed response is a sequence of named SSE events, each with a `sequence_number`:
//!
//! ```text
//! response.created  response.in_progress
//! (response.output_item.added  (response.content_part.added)
//!  response.output_text.delta* | response.reasoning_text.delta* | response.function_call_arguments.delta*
//!  response.*.done  (response.content_part.done)  response.output_item.done)*
//! response.completed | response.incomplete | response.failed
//! ```
//!
//! Items are messages, reasoning, and function calls. A response that is rejected after the HTTP headers were sent,
//! and before its first event, is one event `error`. A canceled response ends with `response.failed` and the status
//! `cancelled`.
//!
//! **Sequence numbers** count steps of the token log, not events (see `sequence_number`): an event that covers several tokens
//! leaves a gap before its number, and a number means one position, however tokens were grouped into events. A client
//! that resumes after a number gets exactly the events after the number.
//!
//! The complete text in the last events of an answer is decoded again from the token log when the answer ends.

pub(crate) mod conversation;
pub mod encoder;
pub mod output_item;
pub mod request;
pub mod response_object;
pub mod sequence_number;
pub(crate) mod tools;

pub use encoder::ResponsesEncoder;
pub(crate) use encoder::SCHEMAS;
pub use request::parse;

use stream::StreamId;

/// Prefix of response ids; the stream's id follows.
pub const ID_PREFIX: &str = "resp_";

/// The stream of a response id.
pub fn stream_id(response_id: &str) -> Option<StreamId> {
    response_id.strip_prefix(ID_PREFIX)?.parse().ok()
}
