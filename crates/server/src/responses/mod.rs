//! OpenAI's Responses: `/v1/responses*`.
//!
//! ```text
//! routes    who answers what              request   from fields to meaning
//! frames    from events to bytes          items     input items as a conversation
//! object    the response, as JSON         text_format  `text`: what the answer must look like
//! store     those that are kept           record    one of them: what it was asked, and how it ended
//! settings  bounds of that                input     what was asked, listed page by page
//! place     from a sequence number to a place in the log
//! ```
//!
//! A streamed response is told as named SSE events, each with a `sequence_number`:
//!
//! ```text
//! response.created  response.in_progress
//! (response.output_item.added  response.content_part.added  response.output_text.delta*
//!  response.output_text.done  response.content_part.done  response.output_item.done)*
//! response.completed | response.incomplete | response.failed
//! ```
//!
//! A response that is refused after its head was sent, and before it began, is one event `error`. A
//! cancelled one is `response.failed` with the status `cancelled`.
//!
//! **Sequence numbers** count steps of the log, not events: 0 and 1 are the response's beginning, 2 and 3
//! the message's; after that a delta's number is 3 and the number of its last step (see
//! [`Cursor`](crate::streams::Cursor)). So an event that stands for several tokens leaves a gap before it,
//! and a number means the same place however the stream was cut: whoever asks for what comes after one is
//! told neither too much nor too little.
//!
//! The whole text, which an answer's last events repeat, is folded again from the log when it ends.

mod frames;
mod input;
mod items;
mod object;
mod place;
mod record;
mod request;
mod routes;
mod settings;
mod store;
mod text_format;

pub(crate) use frames::Frames;
pub(crate) use request::{Note, parse};
pub(crate) use routes::routes;
pub use settings::ResponseLimits;
pub(crate) use store::Store;

use stream::StreamId;

/// What the ids of responses begin with; the stream's id follows.
pub(crate) const ID_PREFIX: &str = "resp_";

/// The stream whose answer is called so.
fn stream_id(response_id: &str) -> Option<StreamId> {
    response_id.strip_prefix(ID_PREFIX)?.parse().ok()
}
