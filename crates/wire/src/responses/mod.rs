//! OpenAI's Responses: `/v1/responses*`.
//!
//! ```text
//! routes    who answers what              request   from fields to meaning
//! frames    from events to bytes          items     input items as a conversation
//! object    the response, as JSON         text_format  `text`: what the answer must look like
//! tools     what may be called            place     sequence numbers, and what places they mean
//! store     those that are kept           record    one of them: what it was asked, and how it ended
//! settings  bounds of that                input     what was asked, listed page by page
//!                                         input_tokens  a prompt, counted
//! ```
//!
//! A streamed response is told as named SSE events, each with a `sequence_number`:
//!
//! ```text
//! response.created  response.in_progress
//! (response.output_item.added  (response.content_part.added)
//!  response.output_text.delta* | response.reasoning_text.delta* | response.function_call_arguments.delta*
//!  response.*.done  (response.content_part.done)  response.output_item.done)*
//! response.completed | response.incomplete | response.failed
//! ```
//!
//! Items are messages, what the model thought, and calls of functions. A response that is refused after its
//! head was sent, and before it began, is one event `error`. A cancelled one is `response.failed` with the
//! status `cancelled`.
//!
//! **Sequence numbers** count steps of the log, not events (see `place`): an event that stands for several
//! tokens leaves a gap before it, and a number means the same place however the stream was cut. Whoever asks
//! for what comes after one is told neither too much nor too little.
//!
//! The whole text, which an answer's last events repeat, is folded again from the log when it ends.

pub mod encoder;
pub(crate) mod event;
pub mod input;
pub mod item;
pub(crate) mod items;
pub mod object;
pub mod place;
pub mod request;
pub(crate) mod request_fields;
pub(crate) mod text_format;
pub(crate) mod tools;

pub use encoder::ResponsesEncoder;
pub use request::{Note, parse};

use stream::StreamId;

/// What the ids of responses begin with; the stream's id follows.
pub const ID_PREFIX: &str = "resp_";

/// The stream whose answer is called so.
pub fn stream_id(response_id: &str) -> Option<StreamId> {
    response_id.strip_prefix(ID_PREFIX)?.parse().ok()
}
