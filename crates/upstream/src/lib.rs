//! Requests of a remote handle on OpenAI-compatible servers of others: vLLM, or any server that takes a prompt as token ids
//! and returns token ids.
//!
//! Tokens are the ground truth (docs/decisions/0018-upstreams-by-token-ids.md): what an upstream returns is appended to the
//! choice's log by its ids, so streams, wire protocols, resumption and keys work as with an engine. After a cut, a greedy
//! choice continues on another upstream from its prompt and its tokens so far; any other one ends with
//! [`stream::End::Lost`], because its random numbers are unknown. Text is never pasted into a prompt.
//!
//! ```text
//! address       where an upstream is
//! chunk         one event of a response: ids, and the end
//! config        bounds and time limits
//! event_lines   bytes of a response -> events, bounded
//! http_call     one request: connect, send, read
//! relay         takes the requests of a handle; attempts, cancellation, credit
//! request_body  a request's record and its tokens so far -> JSON
//! ```

mod address;
mod chunk;
mod config;
mod event_lines;
mod http_call;
mod relay;
mod request_body;

pub use address::{InvalidAddress, UpstreamAddress};
pub use config::{UpstreamConfig, UpstreamModel};
pub use relay::UpstreamRelay;
pub use request_body::unsupported_part;
