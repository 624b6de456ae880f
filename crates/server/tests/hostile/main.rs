//! Hostile input over sockets.

mod bodies;
mod credentials;
mod http_vectors;
#[path = "../support/mod.rs"]
mod support;
