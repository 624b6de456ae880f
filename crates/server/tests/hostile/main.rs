//! Hostile input over sockets.

mod bodies;
#[path = "../support/mod.rs"]
mod support;
