//! Anthropic's format: `/v1/messages`, `/v1/messages/count_tokens`, and `/v1/models` for who sends
//! `anthropic-version`.
//!
//! A streamed message is told as named SSE events:
//!
//! ```text
//! message_start  (content_block_start  content_block_delta*  content_block_stop)*
//! message_delta{stop_reason,stop_sequence,usage}  message_stop
//! ```
//!
//! with `ping` anywhere. A message that ends badly has, after what was told of it, a `message_delta`
//! without a reason that has the counts, and then `error`; nothing follows.
//!
//! Text, thinking and each call of a tool are blocks of their own, in the order in which they were made.
//!
//! Where frames have SSE ids, those of `content_block_delta` and after have them. `message_start`,
//! `content_block_start`, and what ends a block because another begins, open what follows and are no place
//! to come back to: who was cut off after one is told it again. So is `signature_delta`.
//!
//! A message has one answer. A stream that was opened in another format may have several; read as a
//! message, each has blocks of its own, the last of whose `content_block_stop` names its `stop_reason`.

pub(crate) mod blocks;
pub(crate) mod content;
pub(crate) mod conversation;
pub(crate) mod encoder;
pub(crate) mod ending;
pub mod message_request;
pub mod models;
pub(crate) mod output_format;
pub mod refusal;
#[cfg(test)]
mod tests;
pub(crate) mod tools;
