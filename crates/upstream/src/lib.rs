//! Requests of a remote handle on OpenAI-compatible servers of others: vLLM, llama.cpp's server, other Millraces.
//!
//! Tokens are the ground truth (docs/decisions/0018-upstreams-by-token-ids.md): what an upstream returns is appended to the
//! choice's log by its ids, so streams, wire protocols, resumption and keys work as with an engine. After a cut, a choice
//! whose rest is the same by construction continues on another upstream from its tokens so far; any other one ends with
//! [`stream::FailCode::Upstream`]. Of an upstream without ids, the log has ids whose text is the upstream's text
//! ([`text::TextCover`]); such a choice never continues. Text is never pasted into a prompt.
//!
//! ```text
//! body             a request's record and its tokens so far -> JSON
//! config           addresses, bounds and time limits
//! event            bytes of a response -> ids, and the end
//! http_call        one request for tokens: send, read, report; texts of upstreams without the secrets that they repeat
//! model_probe      which model an upstream serves, and how it is asked
//! relay            takes the requests of a handle; attempts, cancellation, credit
//! upstream_status  what is known of the upstreams, and counts
//! ```

mod body;
mod config;
mod event;
mod http_call;
mod model_probe;
mod relay;
mod upstream_status;

pub use config::{
    InvalidAddress, UPSTREAMS_MAX, UpstreamAddress, UpstreamApi, UpstreamConfig, UpstreamModel,
};
pub use relay::UpstreamRelay;
pub use upstream_status::{UpstreamCounts, UpstreamStatus};
