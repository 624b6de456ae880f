//! Webhooks: the HTTP client that sends events.
//!
//! ```text
//! http_sender       one thread for each attempt, with an HTTP client
//! checked_resolver  addresses of a host, all of which are checked
//! ```

mod checked_resolver;
mod http_sender;

pub(crate) use http_sender::HttpSender;
