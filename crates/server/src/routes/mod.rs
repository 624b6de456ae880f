//! Handlers of the routes.

pub(crate) mod cluster;
pub(crate) mod completion_list;
pub(crate) mod durable_streams;
pub(crate) mod generation;
pub(crate) mod jobs;
pub(crate) mod llama_cpp;
pub(crate) mod models;
pub(crate) mod ollama;
pub(crate) mod page;
mod peer_feeds;
pub(crate) mod responses;
pub(crate) mod stream_feed;
pub(crate) mod stream_list;
pub(crate) mod streams;
pub(crate) mod vocabulary;
pub(crate) mod webhooks;
pub(crate) mod workflows;
