//! Hostile input over sockets.

mod bodies;
mod credentials;
mod http_vectors;
