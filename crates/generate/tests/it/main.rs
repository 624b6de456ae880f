//! Generations over an engine that is stepped by hand.

mod remote;
mod resume;
mod support;
