//! Handlers of Ollama's API.

pub(crate) mod errors;
pub(crate) mod generation;
pub(crate) mod models;
pub(crate) mod pull;
pub(crate) mod residence;
pub(crate) mod store;
pub(crate) mod unsupported;
