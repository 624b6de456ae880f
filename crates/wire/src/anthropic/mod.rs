//! Anthropic's Messages API: `/v1/messages`, `/v1/messages/count_tokens`, and `/v1/models` for clients that send
//! `anthropic-version`.
//!
//! A streamed message is a sequence of named SSE events:
//!
//! ```text
//! message_start  (content_block_start  content_block_delta*  content_block_stop)*
//! message_delta{stop_reason,stop_sequence,usage}  message_stop
//! ```
//!
//! with `ping` anywhere. A message that fails ends with a `message_delta` that has the usage and no reason, and then
//! `error`; nothing follows.
//!
//! Text, reasoning (`thinking`) and each tool call are separate blocks, in the order of generation.
//!
//! Where frames have SSE ids, `content_block_delta` and later frames carry them. `message_start`,
//! `content_block_start`, and the `content_block_stop` before the start of another block carry none: a client that was
//! disconnected after one of these frames receives the frame again. `signature_delta` is repeated in the same way.
//!
//! A message has one answer. A stream of another protocol may have several choices; read as a message, each choice has
//! its own blocks, and the last `content_block_stop` of a choice names its `stop_reason`.

pub(crate) mod conversation;
pub(crate) mod encoder;
pub mod error_response;
pub mod message_request;
pub mod model_list;
#[cfg(test)]
mod tests;
