//! The HTTP/1.1 client of all requests that a process sends: to webhooks, upstreams, other gateways, a model hub, and a
//! running server.
//!
//! ```text
//! client     requests, redirects and bodies, with their bounds     blocking        the same for a thread that may block
//! connector  addresses, proxies and TLS of a new connection        tls             how a server's certificate is verified
//! error      why a request has no response                         public_address  addresses of the public internet
//! ```
//!
//! A client is made for one purpose and has one policy ([`ClientOptions`]): which addresses it may reach, whether it uses the
//! proxies of the environment, and how many redirects it follows. Names are resolved once for each connection, all addresses
//! are checked, and the connection is made to these very addresses: a name that resolves to another address a moment later
//! (DNS rebinding) gains nothing.

mod blocking;
mod client;
mod connector;
mod error;
mod public_address;
mod tls;

pub use blocking::{BlockingBody, BlockingClient};
pub use client::{ClientOptions, HttpClient, next_bytes, read_body, retry_after};
pub use connector::{Proxies, Reach};
pub use error::HttpError;
pub use hyper::body::Incoming;
pub use public_address::is_public;
pub use tls::Verification;
